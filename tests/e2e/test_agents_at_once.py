"""Eight agents at once on the real model do what each does alone, in far fewer steps."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from tenuto.agents import Agent, AgentEvent, RunFinished, ToolCalled
from tenuto.config import Config
from tenuto.ids import IdSource
from tenuto.tools import Copied, Tool, tool
from tenuto.wiring import LoadedModel, running
from tenuto.wiring_text import RunningModel

pytestmark = pytest.mark.model

ITEMS = ("brass screws", "绿色的灯", "oak planks", "蓝色的椅子", "copper wire", "白色油漆", "door hinges", "玻璃杯")


def _stock_tool() -> Tool:
    @tool
    async def stock_level(item: Copied[str]) -> str:
        """How many of an item are in stock."""
        await asyncio.sleep(0)
        return f"{item}: {len(item)}"

    return stock_level


async def _run(agent: Agent, item: str) -> list[AgentEvent]:
    return [event async for event in agent.run(f"How many {item} are there?")]


def _gist(events: list[AgentEvent]) -> list[object]:
    """What a run did, without ids and times."""
    calls = [(e.name, e.arguments) for e in events if isinstance(e, ToolCalled)]
    (finished,) = [e for e in events if isinstance(e, RunFinished)]
    return [calls, finished.reason, finished.text, finished.usage.num_generated]


def _agent(started: RunningModel) -> Agent:
    instructions = "You look after a warehouse."
    return Agent(
        started.model,
        [_stock_tool()],
        instructions,
        max_turns=2,
        max_tokens=40,
        tool_choice="required",
        ids=IdSource(3),
    )


def test_eight_at_once_do_what_each_does_alone(loaded: LoadedModel, config: Config) -> None:
    async def main() -> tuple[list[list[object]], list[list[object]], int, int]:
        async with running(loaded, config) as started:
            agent = _agent(started)
            alone = [_gist(await _run(agent, item)) for item in ITEMS]
            steps_alone = (await started.engine.counters()).num_steps
        async with running(loaded, config) as started:
            agent = _agent(started)
            together = [_gist(e) for e in await asyncio.gather(*(_run(agent, item) for item in ITEMS))]
            return alone, together, steps_alone, (await started.engine.counters()).num_steps

    alone, together, steps_alone, steps_together = anyio.run(main)
    assert together == alone
    assert all(calls for calls, *_ in alone), "the tool was called"
    assert steps_together * 2 < steps_alone
