"""A `SessionClient` that tells what the session routes generate."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import cast

from tenuto.ids import SessionId, TokenId
from tenuto.protocol.engine import SessionStats
from tenuto.protocol.hints import ExpectedWait, RunHints
from tenuto.protocol.sessions import (
    SessionClient,
    SessionContent,
    SessionEvent,
    SessionFinished,
    SessionGenerate,
    SessionInput,
)
from tenuto.telemetry.telemetry import Telemetry


class ObservedSessions:
    """Implements `SessionClient` over another one; nothing is changed."""

    def __init__(self, sessions: SessionClient, telemetry: Telemetry) -> None:
        self._sessions = sessions
        self._telemetry = telemetry

    async def open(self, session: SessionId, *, parent: SessionId | None = None, hints: RunHints = RunHints()) -> None:
        await self._sessions.open(session, parent=parent, hints=hints)

    async def append(
        self, session: SessionId, added: SessionInput, hints: RunHints = RunHints()
    ) -> tuple[TokenId, ...]:
        return await self._sessions.append(session, added, hints)

    async def generate(self, session: SessionId, request: SessionGenerate) -> AsyncGenerator[SessionEvent, None]:
        telemetry = self._telemetry
        events = cast("AsyncGenerator[SessionEvent, None]", self._sessions.generate(session, request))
        with telemetry.work("generate", request.hints, session) as work:
            async with aclosing(events):
                async for event in events:
                    telemetry.token(work)
                    if isinstance(event, SessionFinished):
                        telemetry.replied(work, event.usage, event.reason, None)
                    yield event

    async def suspend(self, session: SessionId, wait: ExpectedWait) -> None:
        await self._sessions.suspend(session, wait)

    async def truncate(self, session: SessionId, num_tokens: int) -> None:
        await self._sessions.truncate(session, num_tokens)

    async def close(self, session: SessionId) -> None:
        await self._sessions.close(session)

    async def stats(self, session: SessionId) -> SessionStats:
        return await self._sessions.stats(session)

    async def content(self, session: SessionId) -> SessionContent:
        return await self._sessions.content(session)

    def export(self, session: SessionId) -> AsyncIterator[bytes]:
        return self._sessions.export(session)

    async def import_(self, session: SessionId, pieces: AsyncIterator[bytes], hints: RunHints = RunHints()) -> None:
        await self._sessions.import_(session, pieces, hints)
