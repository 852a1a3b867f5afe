"""Agents as sequences of tokens on an `EngineClient`: what the engine does, without text, templates or tools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from tenuto.bench.driver import RunClock
from tenuto.bench.records import TurnRecord
from tenuto.bench.stopwatch import TurnWatch
from tenuto.bench.workload import TokenWorkload
from tenuto.ids import SessionId, TokenId
from tenuto.protocol.engine import EngineClient, GenerateParams, SamplingParams
from tenuto.protocol.hints import ExpectedWait

Mode: TypeAlias = Literal["held", "serial", "reprefill"]
"""`held`: all agents at once, each in a session. `serial`: the same, one agent after the other. `reprefill`: one after
the other, and every turn computes the whole history again."""

Sampled: TypeAlias = Callable[[int], SamplingParams]
"""How the tokens of an agent are chosen."""


class TokenAgents:
    """Each agent in a session: a turn gives the engine what is new, and nothing else.

    Args:
        hold: false: every turn is a session of its own that is given the whole history.
        sampled: None: greedy.

    Attributes:
        outputs: by agent, the generated ids of its turns so far.
        sessions: those still open.
    """

    def __init__(
        self,
        engine: EngineClient,
        workload: TokenWorkload,
        clock: RunClock,
        *,
        hold: bool = True,
        sampled: Sampled | None = None,
    ) -> None:
        self._engine = engine
        self._workload = workload
        self._clock = clock
        self._hold = hold
        self._sampled = sampled
        self._histories: list[list[TokenId]] = [[] for _ in workload.pieces]
        self.outputs: list[list[tuple[TokenId, ...]]] = [[] for _ in workload.pieces]
        self.sessions: list[SessionId] = []

    @property
    def clock(self) -> RunClock:
        return self._clock

    async def tool(self, agent: int) -> None:
        wait_s = self._workload.shape.tool_s
        if self._hold:
            await self._engine.suspend(_session(agent), ExpectedWait(seconds=wait_s))
        await self._clock.sleep(wait_s)

    async def turn(self, agent: int, turn: int) -> TurnRecord:
        piece = self._workload.pieces[agent][turn]
        history = self._histories[agent]
        history += piece
        watch = TurnWatch(agent, turn, len(piece), self._clock.now)
        session = _session(agent) if self._hold else SessionId(f"{_session(agent)}-{turn}")
        if turn == 0 or not self._hold:
            await self._engine.open(session)
        if self._hold:
            if turn == 0:
                self.sessions.append(session)
            record, ids = await self._generate(session, piece, watch)
        else:
            record, ids = await self._generate(session, history, watch)
            await self._engine.close(session)
        history += ids
        self.outputs[agent].append(ids)
        return record

    async def _generate(
        self, session: SessionId, ids: Sequence[TokenId], watch: TurnWatch
    ) -> tuple[TurnRecord, tuple[TokenId, ...]]:
        num_wanted = self._workload.shape.output_tokens
        sampling = SamplingParams() if self._sampled is None else self._sampled(watch.agent)
        # No stop ids: every system and every setting generates the same number of tokens.
        params = GenerateParams(max_tokens=num_wanted, sampling=sampling)
        new: list[TokenId] = []
        usage = None
        async for delta in self._engine.generate(session, ids, params):
            watch.saw_delta(delta)
            new += delta.ids
            usage = delta.usage
        assert usage is not None, "a stream ends with its usage"
        assert len(new) == num_wanted, f"{len(new)} tokens where {num_wanted} were asked for"
        return watch.record(usage.num_prompt, usage), tuple(new)


def _session(agent: int) -> SessionId:
    return SessionId(f"agent-{agent}")
