"""The built-in assistant on the embedded model: which questions it gets right. docs/assistant.md tells the numbers.

`python -m pytest tests/e2e/test_assistant.py -s` prints a line for each question.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from tenuto.agents import Agent, RunFinished, ToolAnswered, ToolCalled
from tenuto.cli.assistant import assistant, toolbox
from tenuto.clock import RealClock
from tenuto.config import Config
from tenuto.wiring import LoadedModel, load, running

pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]

WEATHER = {
    "What is the weather in Beijing today?": ("Beijing", "today", "30 November"),
    "Will it rain in Shanghai tomorrow?": ("Shanghai", "tomorrow", "1 December"),
    "Check New York's weather next Monday for me": ("New York", "next Monday", "7 December"),
    "北京今天天气怎么样？": ("北京", "今天", "11月30日"),
    "上海明天会下雨吗？": ("上海", "明天", "12月1日"),
    "帮我看看纽约下周一的天气": ("纽约", "下周一", "12月7日"),
}
NO_CITY = ("What's the weather tomorrow?", "明天天气怎么样？")
LEAST_RIGHT = 5


class Monday(RealClock):
    """Monday, 30 November 2026, whatever day it is."""

    def today(self) -> datetime:
        return datetime(2026, 11, 30, 9, tzinfo=UTC)


@dataclass(frozen=True)
class Outcome:
    question: str
    calls: tuple[tuple[str, dict[str, str]], ...]
    results: tuple[str, ...]
    answer: str
    reason: str

    def report(self) -> list[str]:
        """Condition and temperature, as the tool told them."""
        return re.split(r"[,，]\s*|\s?[(（]", re.split("[:：] ?", self.results[0], maxsplit=1)[1])[:2]

    def is_right(self) -> bool:
        city, day, resolved = WEATHER[self.question]
        return self.calls == (("weather", {"city": city, "date": day}),) and resolved in self.results[0]


async def ask(agent: Agent, question: str) -> Outcome:
    calls, results = [], []
    async for event in agent.run(question):
        match event:
            case ToolCalled(name=name, arguments=arguments):
                calls.append((name, arguments))
            case ToolAnswered(text=text):
                results.append(text)
            case RunFinished():
                return Outcome(question, tuple(calls), tuple(results), event.text, event.reason)
    raise AssertionError("a run ends with RunFinished")


async def _measure(loaded: LoadedModel, config: Config) -> dict[str, Outcome]:
    """All questions at once, through the agent of `tenuto run` with every built-in tool."""
    async with running(loaded, config) as started:
        agent = assistant(started.model, config, toolbox(config, clock=Monday()))
        first = await ask(agent, next(iter(WEATHER)))  # alone, so that the others find the examples' KV
        rest = await asyncio.gather(*(ask(agent, q) for q in (*WEATHER, *NO_CITY) if q != first.question))
    return {outcome.question: outcome for outcome in (first, *rest)}


PRECISIONS = ("int8", pytest.param("fp32", marks=pytest.mark.soak))


@pytest.fixture(scope="module", params=PRECISIONS)
def outcomes(
    request: pytest.FixtureRequest, config: Config, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Outcome]:
    changed = {"search_root": tmp_path_factory.mktemp("documents"), "precision": request.param}
    config = config.model_copy(update=changed)
    loaded = request.getfixturevalue("loaded") if request.param == "int8" else load(config, RealClock())
    found = asyncio.run(_measure(loaded, config))
    for outcome in found.values():
        print(f"\n{outcome.question}\n  {outcome.calls}\n  {outcome.results}\n  {outcome.answer}", end="")
    return found


def test_the_tool_is_reached_with_the_right_city_and_date(outcomes):
    wrong = [outcome for outcome in outcomes.values() if outcome.question in WEATHER and not outcome.is_right()]
    assert len(WEATHER) - len(wrong) >= LEAST_RIGHT, wrong


def test_the_answer_says_what_the_tool_said(outcomes):
    right = [o for o in outcomes.values() if o.question in WEATHER and o.is_right()]
    truthful = [o for o in right if o.reason == "answer" and all(part in o.answer for part in o.report())]
    assert len(truthful) >= LEAST_RIGHT, right


def test_answers_tell_that_the_weather_is_simulated(outcomes):
    answers = [o.answer for o in outcomes.values() if o.question in WEATHER]
    assert sum("simulated" in answer or "模拟" in answer for answer in answers) >= LEAST_RIGHT, answers


@pytest.mark.parametrize(("question", "asked"), list(zip(NO_CITY, ("city", "城市"), strict=True)))
def test_a_question_without_a_city_is_asked_back(outcomes, question, asked):
    outcome = outcomes[question]
    assert outcome.reason == "answer"
    assert asked in outcome.answer and outcome.answer.rstrip()[-1] in "?？"
    assert not re.search(r"°C", outcome.answer + "".join(outcome.results))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_command_prints_its_events_as_json_lines(tmp_path, precision):
    """A terminal that is not set to UTF-8 must not matter."""
    command = [sys.executable, "-c", "from tenuto.cli import main; main()", "run", "--precision", precision]
    command += ["--json", "上海明天会下雨吗？"]
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "TENUTO_SEARCH_ROOT": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, env=env, cwd=tmp_path, timeout=240, check=False)
    assert done.returncode == 0, done.stderr.decode()
    events = [json.loads(line) for line in done.stdout.decode("utf-8").splitlines()]
    assert events[0]["type"] == "run_started"
    (call,) = [event for event in events if event["type"] == "tool_call"]
    assert (call["name"], call["arguments"]) == ("weather", {"city": "上海", "date": "明天"})
    (result,) = [event for event in events if event["type"] == "tool_result"]
    assert result["text"].startswith("上海，明天（") and result["text"].endswith("（模拟）")
    assert events[-1]["type"] == "run_finished" and events[-1]["reason"] == "answer"
    assert "上海" in events[-1]["text"]
