"""The loop that every run has in common: turns, the waits between them, and the time they are measured in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeAlias

from tenuto.bench.records import TurnRecord
from tenuto.bench.shape import Shape
from tenuto.clock import Clock

Progress: TypeAlias = Callable[[TurnRecord], None]
"""Told of each turn as it ends."""


class RunClock:
    """Seconds since the run began."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._origin_s = clock.now()

    def start(self) -> None:
        self._origin_s = self._clock.now()

    def now(self) -> float:
        return self._clock.now() - self._origin_s

    async def sleep(self, delay_s: float) -> None:
        await self._clock.sleep(delay_s)


class Agents(Protocol):
    """All agents of a workload on one system."""

    @property
    def clock(self) -> RunClock: ...

    async def turn(self, agent: int, turn: int) -> TurnRecord:
        """The next turn of an agent, to its last token."""
        ...

    async def tool(self, agent: int) -> None:
        """The agent waits for a tool."""
        ...


async def drive(
    agents: Agents, shape: Shape, *, at_once: bool, progress: Progress | None = None
) -> tuple[TurnRecord, ...]:
    """Run every agent to its end, all at once or one after the other. If one fails, the others are cancelled.

    Raises what the agents raise: the first error, not a group of them.
    """
    agents.clock.start()
    if not at_once:
        return tuple([turn for agent in range(shape.agents) for turn in await _agent(agents, agent, shape, progress)])
    tasks = [asyncio.create_task(_agent(agents, agent, shape, progress)) for agent in range(shape.agents)]
    try:
        return tuple(turn for turns in await asyncio.gather(*tasks) for turn in turns)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _agent(agents: Agents, agent: int, shape: Shape, progress: Progress | None) -> list[TurnRecord]:
    turns = []
    for turn in range(shape.turns):
        if turn:
            await agents.tool(agent)
        turns.append(await agents.turn(agent, turn))
        if progress is not None:
            progress(turns[-1])
    return turns
