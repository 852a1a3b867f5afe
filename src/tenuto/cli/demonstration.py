"""What `tenuto demo` runs: the weather agent, its KV held and not held, then eight agents at once."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field

import anyio
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tenuto.agents import Agent, AgentEvent, Conversation, RunFinished, Text, ToolAnswered, ToolCalled, TurnFinished
from tenuto.cli.assistant import assistant, weather_toolbox
from tenuto.cli.render import ShowText
from tenuto.clock import RealClock
from tenuto.config import Config
from tenuto.errors import TenutoError
from tenuto.wiring import LoadedModel, load, running

CONVERSATION = ("What is the weather in Beijing today?", "And in New York tomorrow?", "上海明天会下雨吗？")
QUESTIONS = (
    "What is the weather in Berlin today?",
    "广州明天天气怎么样？",
    "Will it rain in Madrid tomorrow?",
    "深圳今天会下雨吗？",
    "How is the weather in San Francisco next Friday?",
    "请查一下成都后天的天气",
    "Check the weather in Cairo today",
    "西安下周一天气如何？",
)
NUM_BASELINE = 2  # agents run one at a time with re-prefill; it is slow, and a rate needs no more


@dataclass
class Transcript:
    """What one or more runs did: enough to compare them and to fill the tables."""

    turns: list[TurnFinished] = field(default_factory=list)
    tool_s: list[float] = field(default_factory=list)  # a turn's tool time, by position in `turns`
    answers: list[str] = field(default_factory=list)  # calls and texts, in order

    def __call__(self, event: AgentEvent) -> None:
        match event:
            case TurnFinished():
                self.turns.append(event)
                self.tool_s.append(0.0)
            case ToolCalled(name=name, arguments=arguments):
                self.answers.append(f"{name} {json.dumps(arguments, ensure_ascii=False)}")
            case ToolAnswered(duration_s=duration_s):
                self.tool_s[-1] += duration_s
            case RunFinished(reason="error", error=error):
                raise TenutoError(f"a run of the demo failed: {error}")
            case RunFinished(text=text):
                self.answers.append(text)
            case Text() | _:
                pass


@dataclass(frozen=True)
class Summary:
    """The demo's numbers, all from this one run."""

    held_computed_tokens: int
    off_computed_tokens: int
    held_ttft_s: list[float]
    off_ttft_s: list[float]
    same_answers: bool
    one_agent_s: float
    num_agents: int
    all_agents_s: float
    ratio_to_one: float  # all agents' time over one agent's
    agents_per_s: float
    in_turn_agents_per_s: float  # one at a time, KV held and shared
    baseline_agents_per_s: float  # one at a time, re-prefill
    speed_up: float  # at once over that baseline
    same_as_alone: bool


async def demonstrate(config: Config, console: Console) -> Summary:
    started = time.monotonic()
    with console.status("loading the model ..."):
        loaded = await anyio.to_thread.run_sync(load, config, RealClock())
    precision = loaded.decoder.device.precision
    console.print(f"[bold]{loaded.name}[/], {precision}, loaded in {time.monotonic() - started:.1f} s", highlight=False)

    console.print("\n[bold]1. One conversation, its KV held across tool calls[/]\n")
    held = await _converse(loaded, config, ShowText(console), hold=True)
    console.print("\n[bold]2. The same conversation, held and prefilled again each turn, side by side[/]\n")
    with console.status("running the same questions without holding ..."):
        off = await _converse(loaded, _without_reuse(config), None, hold=False)
    console.print(_side_by_side(held, off))
    same = held.answers == off.answers
    console.print(f"Same calls and answers: {'yes' if same else '[red]no[/]'}", highlight=False)
    return await _many(loaded, config, console, held, off)


def _without_reuse(config: Config) -> Config:
    return config.model_copy(update={"prefix_cache": False})


async def _converse(loaded: LoadedModel, config: Config, show: ShowText | None, *, hold: bool) -> Transcript:
    """The questions of CONVERSATION, one after the other, on an engine of their own."""
    transcript = Transcript()
    async with (
        running(loaded, config) as started,
        Conversation(assistant(started.model, config, weather_toolbox(), hold=hold)) as conversation,
    ):
        for question in CONVERSATION:
            if show is not None:
                show.question(question)
            async for event in conversation.run(question):
                transcript(event)
                if show is not None:
                    show(event)
    return transcript


def _side_by_side(held: Transcript, off: Transcript) -> Table:
    """Turn by turn: what was known, what was held of it, what was computed; beside it the run that holds nothing."""
    table = Table(
        caption="Tokens: known = held + computed; forced by the grammar, not decoded.\n"
        "Seconds: TTFT to the first new token, tool in the tool.",
        caption_justify="left",
    )
    table.add_column("turn", justify="right")
    for name in ("held:\nknown", "\nheld", "\ncomputed", "\nforced", "\nTTFT", "\ntool"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("not held:\ncomputed", "\nTTFT"):
        table.add_column(name, justify="right", style="yellow")
    for number, (a, b, tool_s) in enumerate(zip(held.turns, off.turns, held.tool_s, strict=False), 1):
        use, other = a.usage, b.usage
        row = (number, use.num_prompt, use.num_held + use.num_shared, use.num_computed, use.num_forced)
        times = (f"{use.ttft_s:.2f}", f"{tool_s:.2f}")
        table.add_row(*map(str, row), *times, str(other.num_computed), f"{other.ttft_s:.2f}")
    return table


async def _many(loaded: LoadedModel, config: Config, console: Console, held: Transcript, off: Transcript) -> Summary:
    """One agent, then all at once, then a few one at a time with re-prefill: each on a fresh engine."""
    console.print(f"\n[bold]3. {len(QUESTIONS)} agents at once[/]\n")
    with console.status("one agent alone ..."):
        one_s, _ = await _timed(loaded, config, QUESTIONS[:1], at_once=True, hold=True)
    with console.status(f"{len(QUESTIONS)} agents at once ..."):
        all_s, together = await _timed(loaded, config, QUESTIONS, at_once=True, hold=True)
    with console.status("the same agents one after the other ..."):
        in_turn_s, alone = await _timed(loaded, config, QUESTIONS, at_once=False, hold=True)
    with console.status("one at a time, prefilling again each turn ..."):
        base_s, _ = await _timed(loaded, _without_reuse(config), QUESTIONS[:NUM_BASELINE], at_once=False, hold=False)
    for question, answers in zip(QUESTIONS, together, strict=True):
        console.print(f"  {question}  [dim]{escape(answers[-1].strip())}[/]", highlight=False, soft_wrap=True)
    summary = Summary(
        held_computed_tokens=sum(t.usage.num_computed for t in held.turns),
        off_computed_tokens=sum(t.usage.num_computed for t in off.turns),
        held_ttft_s=[round(t.usage.ttft_s, 4) for t in held.turns],
        off_ttft_s=[round(t.usage.ttft_s, 4) for t in off.turns],
        same_answers=held.answers == off.answers,
        one_agent_s=one_s,
        num_agents=len(QUESTIONS),
        all_agents_s=all_s,
        ratio_to_one=all_s / one_s,
        agents_per_s=len(QUESTIONS) / all_s,
        in_turn_agents_per_s=len(QUESTIONS) / in_turn_s,
        baseline_agents_per_s=NUM_BASELINE / base_s,
        speed_up=len(QUESTIONS) / all_s * base_s / NUM_BASELINE,
        same_as_alone=together == alone,
    )
    console.print(_verdict(summary), highlight=False)
    return summary


async def _timed(
    loaded: LoadedModel, config: Config, questions: tuple[str, ...], *, at_once: bool, hold: bool
) -> tuple[float, list[list[str]]]:
    """Seconds for all questions, each asked of an agent of its own, and what each did."""
    transcripts = [Transcript() for _ in questions]

    async def ask(agent: Agent, question: str, transcript: Transcript) -> None:
        async for event in agent.run(question):
            transcript(event)

    async with running(loaded, config) as started:
        agent = assistant(started.model, config, weather_toolbox(), hold=hold)
        begun = time.monotonic()
        if at_once:
            async with asyncio.TaskGroup() as group:
                for question, transcript in zip(questions, transcripts, strict=True):
                    group.create_task(ask(agent, question, transcript))
        else:
            for question, transcript in zip(questions, transcripts, strict=True):
                await ask(agent, question, transcript)
        took_s = time.monotonic() - begun
    return took_s, [transcript.answers for transcript in transcripts]


def _verdict(s: Summary) -> str:
    same = "the same calls and answers as alone" if s.same_as_alone else "[red]other answers than alone[/]"
    return (
        f"\n  One agent takes {s.one_agent_s:.1f} s, {s.num_agents} at once {s.all_agents_s:.1f} s: "
        f"{s.ratio_to_one:.1f} times as long, not {s.num_agents} times,\n  with {same}.\n\n"
        f"  Agents per second\n"
        f"    {s.baseline_agents_per_s:5.2f}  one at a time, prefilling the history again each turn\n"
        f"    {s.in_turn_agents_per_s:5.2f}  one at a time, KV held and shared\n"
        f"    {s.agents_per_s:5.2f}  {s.num_agents} at once, KV held and shared: "
        f"[bold]{s.speed_up:.1f} times[/] the first"
    )
