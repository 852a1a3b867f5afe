"""Actors that run the production agent loop on the engine under test, with tools that are slow, fail or hang."""

from __future__ import annotations

import asyncio
import random
import zlib
from collections.abc import Sequence
from typing import Any

from tenuto.agents import Agent, AgentEvent, RunFinished, RunStarted, ToolAnswered, ToolCalled, TurnFinished
from tenuto.agents.closing import closing
from tenuto.clock import Clock
from tenuto.ids import IdSource, SessionId
from tenuto.protocol.engine import SamplingParams
from tenuto.testing.scripted_tools import ScriptedTools
from tenuto.testing.toy_model import ToyModelClient
from tenuto.testing.world_stage import Stage
from tenuto.tools import Tool

QUESTIONS = ("what", "who is it", "再说一次", "今天天气怎么样？")
MODEL_FAULTS = frozenset({"step_failed", "queue_full", "context_length_error", "never_fits", "run_timeout"})


def toy_tools(clock: Clock) -> list[Tool]:
    """A quick tool, a slow one, one that fails now and then, and one that often misses its deadline."""
    scripted = ScriptedTools(clock)

    def number(arguments: dict[str, Any]) -> int:
        return zlib.crc32(str(arguments["query"]).encode())

    def flaky(arguments: dict[str, Any]) -> Any:
        return RuntimeError("the tool broke") if number(arguments) % 3 == 0 else "ok"

    return [
        scripted.make("quick", lambda arguments: f"r{number(arguments) % 10}"),
        scripted.make("slow", ["done"], delay_s=lambda arguments: number(arguments) % 40 / 10),
        scripted.make("flaky", flaky, delay_s=0.02),
        scripted.make("hangs", ["late"], delay_s=lambda arguments: number(arguments) % 5, deadline_s=1.5),
    ]


class AgentActor:
    """Asks an agent one question after the other, and keeps account of every run's events."""

    def __init__(self, name: str, rng: random.Random, stage: Stage, tools: Sequence[Tool]) -> None:
        ids = IdSource(rng.randrange(1 << 30))
        self.name = name
        self._rng = rng
        self._stage = stage
        self._model = ToyModelClient(stage, ids)
        self._agent = Agent(
            self._model,
            tools,
            rng.choice(("", "be brief", "你是助手")),
            max_turns=rng.randint(1, 5),
            deadline_s=rng.choice((None, None, 3.0)),
            max_tokens=rng.randint(1, 8),
            sampling=SamplingParams(temperature=rng.choice((0.0, 0.8)), seed=rng.randrange(100)),
            hold=rng.random() < 0.8,
            clock=stage.clock,
            ids=ids,
        )

    async def live(self) -> None:
        """One run after the other until the storm is over, or the engine stops."""
        while self._stage.storm and not self._stage.stopped:
            await self._interruptible_run()
            await self._stage.clock.sleep(self._rng.expovariate(1.0) * 0.05)

    async def finish(self) -> None:
        """In the calm a run ends by itself, and never because of a failed step."""
        events: list[AgentEvent] = []
        await self._run(events, leave_at=0)
        await self._stage.arrived()
        last = self._check_run(events)
        self._stage.history.expect(last is not None, "a run in the calm has no end")
        assert last is not None
        self._stage.history.expect(last.error_code != "step_failed", "a step failed in the calm")

    async def _interruptible_run(self) -> None:
        rng, stage = self._rng, self._stage
        leave_at = rng.randint(1, 12) if stage.storm and rng.random() < stage.config.interrupt else 0
        events: list[AgentEvent] = []
        task = asyncio.create_task(self._run(events, leave_at))
        cancelled = False
        if stage.storm and rng.random() < stage.config.interrupt:
            await stage.clock.sleep(rng.expovariate(1.0) * rng.choice((0.01, 0.1, 2.0)))
            if cancelled := task.cancel():
                stage.history.count("cancel: tool wait" if _waits_for_tools(events) else "cancel: agent run")
        try:
            await task
        except asyncio.CancelledError:
            if not (cancelled and task.cancelled()):
                raise
        await self._stage.arrived()
        self._check_run(events)

    async def _run(self, events: list[AgentEvent], leave_at: int) -> None:
        async with closing(self._agent.run(self._rng.choice(QUESTIONS))) as stream:
            async for event in stream:
                events.append(event)
                self._stage.history.add(self._stage.clock.now(), self.name, event)
                if len(events) == leave_at:
                    self._stage.history.count("agent run left")
                    return

    def _check_run(self, events: Sequence[AgentEvent]) -> RunFinished | None:
        """The session is closed, every call has one result, the usage adds up; the end, if the run got there."""
        if not events:
            return None
        expect, started, last = self._stage.history.expect, events[0], events[-1]
        expect(isinstance(started, RunStarted), f"a run starts with {started}")
        assert isinstance(started, RunStarted)
        if started.session is not None:
            self._check_closed(started.session)
        expect(not any(isinstance(e, RunFinished) for e in events[:-1]), "something follows the end of a run")
        called = [event.id for event in events if isinstance(event, ToolCalled)]
        answered = [event.id for event in events if isinstance(event, ToolAnswered)]
        expect(len(set(answered)) == len(answered), "a call was answered twice")
        expect(set(answered) <= set(called), "a result without its call")
        if not isinstance(last, RunFinished):
            return None
        self._stage.history.count(f"agent: {last.reason} {last.error_code or ''}".rstrip())
        turns = [event.usage for event in events if isinstance(event, TurnFinished)]
        usage = last.usage
        expect(usage.num_turns == len(turns), "the number of turns is wrong")
        expect(usage.num_computed == sum(t.num_computed for t in turns), "the computed tokens do not add up")
        expect(usage.num_generated == sum(t.num_generated for t in turns), "the generated tokens do not add up")
        if last.reason == "error":
            known = last.error_code in MODEL_FAULTS or (self._stage.stopped and last.error_code == "engine_closed")
            expect(known, f"a run ended with {last.error_code}: {last.error}")
        else:
            expect(set(answered) == set(called), f"calls without a result: {called}, {answered}")
        return last

    def _check_closed(self, session: SessionId) -> None:
        is_open = self._stage.engine.is_open(session)
        self._stage.history.expect(not is_open or self._stage.stopped, f"{session} outlives its run")


def _waits_for_tools(events: Sequence[AgentEvent]) -> bool:
    last = events[-1] if events else None
    return isinstance(last, ToolAnswered) or (isinstance(last, TurnFinished) and last.reason == "tool_calls")
