"""An engine seen through: counts the steps and times the ids of streams that somebody else asks for."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

from tenuto.bench.stopwatch import TurnWatch
from tenuto.ids import SessionId, TokenId
from tenuto.protocol.counters import EngineCounters
from tenuto.protocol.engine import (
    EngineClient,
    EngineInfo,
    GenerateParams,
    PooledStates,
    Pooling,
    SessionStats,
    TokenDelta,
)
from tenuto.protocol.hints import ExpectedWait, RunHints


class WatchedEngine:
    """Implements `EngineClient` by handing everything on.

    Attributes:
        watches: the turn that a session's next streams belong to; streams of other sessions are not watched.
    """

    def __init__(self, engine: EngineClient) -> None:
        self._engine = engine
        self.watches: dict[SessionId, TurnWatch] = {}

    async def generate(
        self, session: SessionId, ids: Sequence[TokenId], params: GenerateParams, *, opening: RunHints | None = None
    ) -> AsyncGenerator[TokenDelta, None]:
        watch = self.watches.get(session)
        stream = self._engine.generate(session, ids, params, opening=opening)
        async with aclosing(stream) as deltas:  # type: ignore[type-var]
            async for delta in deltas:
                if watch is not None:
                    watch.saw_delta(delta)
                yield delta

    async def info(self) -> EngineInfo:
        return await self._engine.info()

    async def open(self, session: SessionId, *, parent: SessionId | None = None, hints: RunHints = RunHints()) -> None:
        await self._engine.open(session, parent=parent, hints=hints)

    async def append(self, session: SessionId, ids: Sequence[TokenId], hints: RunHints = RunHints()) -> None:
        await self._engine.append(session, ids, hints)

    async def embed(self, ids: Sequence[TokenId], pooling: Pooling, hints: RunHints = RunHints()) -> PooledStates:
        return await self._engine.embed(ids, pooling, hints)

    async def suspend(self, session: SessionId, wait: ExpectedWait) -> None:
        await self._engine.suspend(session, wait)

    async def truncate(self, session: SessionId, num_tokens: int) -> None:
        await self._engine.truncate(session, num_tokens)

    async def close(self, session: SessionId) -> None:
        await self._engine.close(session)

    async def release(self, ids: Sequence[TokenId], num_kept: int, hints: RunHints = RunHints()) -> int:
        return await self._engine.release(ids, num_kept, hints)

    async def stats(self, session: SessionId) -> SessionStats:
        return await self._engine.stats(session)

    async def counters(self) -> EngineCounters:
        return await self._engine.counters()

    async def tokens(self, session: SessionId) -> tuple[TokenId, ...]:
        return await self._engine.tokens(session)

    def export(self, session: SessionId) -> AsyncIterator[bytes]:
        return self._engine.export(session)

    async def import_(self, session: SessionId, pieces: AsyncIterator[bytes], hints: RunHints = RunHints()) -> None:
        await self._engine.import_(session, pieces, hints)
