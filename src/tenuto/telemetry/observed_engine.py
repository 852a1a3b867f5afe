"""An `EngineClient` that tells what the session routes do with it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import cast

from tenuto.errors import TenutoError
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
from tenuto.telemetry.observed_model import INTERNAL
from tenuto.telemetry.telemetry import Telemetry


class ObservedEngine:
    """Implements `EngineClient` over another one; what it generates is told to the telemetry, nothing is changed."""

    def __init__(self, engine: EngineClient, telemetry: Telemetry) -> None:
        self._engine = engine
        self._telemetry = telemetry

    async def info(self) -> EngineInfo:
        return await self._engine.info()

    async def open(self, session: SessionId, *, parent: SessionId | None = None, hints: RunHints = RunHints()) -> None:
        await self._engine.open(session, parent=parent, hints=hints)

    async def append(self, session: SessionId, ids: Sequence[TokenId], hints: RunHints = RunHints()) -> None:
        await self._engine.append(session, ids, hints)

    async def generate(
        self, session: SessionId, ids: Sequence[TokenId], params: GenerateParams
    ) -> AsyncGenerator[TokenDelta, None]:
        telemetry = self._telemetry
        work = telemetry.start_work("generate", params.hints, session)
        deltas = cast("AsyncGenerator[TokenDelta, None]", self._engine.generate(session, ids, params))
        try:
            async with aclosing(deltas):
                async for delta in deltas:
                    if delta.ids and work.first_token_s is None:
                        telemetry.first_token(work)
                    if delta.usage is not None:
                        telemetry.replied(work, delta.usage, delta.finish or "stop", None)
                    yield delta
        except Exception as error:
            telemetry.failed(work, error.code if isinstance(error, TenutoError) else INTERNAL)
            raise
        finally:
            telemetry.end_work(work)

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

    async def tokens(self, session: SessionId) -> tuple[TokenId, ...]:
        return await self._engine.tokens(session)

    def export(self, session: SessionId) -> AsyncIterator[bytes]:
        return self._engine.export(session)

    async def import_(self, session: SessionId, pieces: AsyncIterator[bytes], hints: RunHints = RunHints()) -> None:
        await self._engine.import_(session, pieces, hints)

    async def counters(self) -> EngineCounters:
        return await self._engine.counters()
