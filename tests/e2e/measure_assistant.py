"""Measures the built-in assistant on questions that were not used to tune it: `python tests/e2e/measure_assistant.py`.

Prints every question that went wrong and the sums that docs/assistant.md tells. Takes about ten minutes on two cores.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

from test_assistant import Monday, Outcome, ask

from tenuto.agents import Agent
from tenuto.cli.assistant import assistant, toolbox, weather_toolbox
from tenuto.clock import RealClock
from tenuto.config import Config
from tenuto.wiring import load, running

HERE = Path(__file__).parent
AT_ONCE = 8
TODAY = ("today", "今天", "now", "right now", "现在")


def sections() -> dict[str, list[list[str]]]:
    """The lines of the question file by the first word of their heading, cut at tabs."""
    found: dict[str, list[list[str]]] = {}
    for line in (HERE / "assistant_questions.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            rows = found.setdefault(line[2:].split(":")[0], [])
        else:
            rows.append(line.split("\t"))
    return found


def weather_verdict(outcome: Outcome, city: str, day: str) -> str:
    if len(outcome.calls) != 1 or outcome.calls[0][0] != "weather":
        return "wrong tool"
    given = outcome.calls[0][1]["date"].lower()
    if not outcome.results[0].startswith(city) or (given != day.lower() if day else given not in TODAY):
        return "wrong city or date"
    return "right" if all(part in outcome.answer for part in outcome.report()) else "right call, untrue answer"


def ask_verdict(outcome: Outcome) -> str:
    asked = re.search("[?？]", outcome.answer) and "°C" not in "".join(outcome.results)
    return "right" if asked else "did not ask"


def tool_verdict(outcome: Outcome, name: str, argument: str) -> str:
    if not name:
        return "right" if not outcome.calls else "wrong tool"
    if not outcome.calls or outcome.calls[0][0] != name:
        return "wrong tool"
    if name == "calculator":
        expression, _, value = outcome.results[0].partition(" = ")
        if expression.replace(" ", "") != argument:
            return "wrong argument"
        return "right" if value in outcome.answer else "right call, untrue answer"
    return "right" if not argument or outcome.calls[0][1]["query"] == argument else "wrong argument"


async def measure(agent: Agent, name: str, rows: list[list[str]]) -> None:
    room = asyncio.Semaphore(AT_ONCE)

    async def one(question: str, *expected: str) -> str:
        async with room:
            outcome = await ask(agent, question)
        verdict = {"weather": weather_verdict, "ask back": ask_verdict, "tools": tool_verdict}[name](outcome, *expected)
        if verdict != "right":
            print(f"  {verdict}: {question} {outcome.calls} {outcome.results} {outcome.answer[:100]!r}")
        return verdict

    verdicts = await asyncio.gather(*(one(*row) for row in rows))
    untrue = verdicts.count("right call, untrue answer")
    print(
        f"{name}: {verdicts.count('right') + untrue} of {len(rows)} right, of these {untrue} answered untruly",
        flush=True,
    )


async def main() -> None:
    config = Config.load(search_root=HERE.parents[1] / "docs")
    loaded = load(config, RealClock())
    boxes = {"four tools": toolbox(config, clock=Monday()), "weather only": weather_toolbox(Monday())}
    for title, box in boxes.items():
        print(f"{title}:")
        names = ("weather", "ask back", "tools") if len(box.tools) > 1 else ("weather", "ask back")
        async with running(loaded, config) as started:
            agent = assistant(started.model, config, box)
            for name in names if len(sys.argv) == 1 else sys.argv[1:]:
                await measure(agent, name, sections()[name])


if __name__ == "__main__":
    asyncio.run(main())
