"""What the routes do with a session of a name: look it up, use it, open it, tell what it is."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from typing import Any

import anyio

from tenuto.errors import Cancelled, InvalidRequest, SessionBusy, SessionNotFound, TenutoError
from tenuto.protocol.hints import RunHints
from tenuto.protocol.sessions import SessionClient, SessionEvent, SessionGenerate
from tenuto.server.answers import closable
from tenuto.server.service import Service
from tenuto.server.sessions import replies
from tenuto.server.sessions.directory import Entry
from tenuto.server.sessions.names import check_name

_FIELDS = {"ids": "token_ids", "stop_ids": "stop_token_ids"}  # the engine's words → the body's


class SessionDesk:
    """One for all routes."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.directory = service.sessions

    @property
    def client(self) -> SessionClient:
        """Raises InvalidRequest where the model is not our own."""
        client = self._service.others.sessions
        if client is None:
            raise InvalidRequest("sessions are not served by this model")
        return client

    @contextmanager
    def using(self, tenant: str, name: str) -> Iterator[Entry]:
        """For the block the tenant's session is in use. Raises SessionNotFound; also if the engine has lost it.
        SessionBusy if it is not there yet."""
        entry = self.directory.find(tenant, name)
        with self.directory.using(entry), self._told_if_gone(entry, num_own_calls=1), _in_words_of_the_body():
            yield entry

    @contextmanager
    def looking(self, tenant: str, name: str) -> Iterator[Entry]:
        """The same for who only looks: that does not keep a session from being closed as unused."""
        entry = self.directory.find(tenant, name)
        with self._told_if_gone(entry, num_own_calls=0):
            yield entry

    @contextmanager
    def _told_if_gone(self, entry: Entry, num_own_calls: int) -> Iterator[None]:
        try:
            yield
        except SessionNotFound as error:
            if entry.num_calls > num_own_calls:
                raise SessionBusy(
                    f"session {entry.name!r} is being opened or imported by another call; try again once that is done"
                ) from error
            self.directory.remove(entry)
            raise SessionNotFound(f"session {entry.name!r} is gone: it was closed, or the engine lost it") from error

    async def open(self, entry: Entry, work: Callable[[], Awaitable[None]]) -> dict[str, Any]:
        """Do what opens the engine's session of a name that is new, and tell what it is.

        Where that fails, the name is free again and nothing is left.
        """
        try:
            with self.directory.using(entry):
                await work()
        except TenutoError:
            self.directory.remove(entry)  # a call that raises has changed nothing
            raise
        except BaseException:
            with anyio.move_on_after(self._service.limits.cancel_deadline_s, shield=True), suppress(TenutoError):
                await self.client.close(entry.session)
            self.directory.remove(entry)
            raise
        if not self.directory.is_known(entry):
            await self.directory.close_forgotten(entry)
            raise Cancelled(f"session {entry.name!r} was deleted while it was being opened")
        return await self.told(entry)

    async def create(self, tenant: str, name: str | None, hints: RunHints, parent: str | None = None) -> dict[str, Any]:
        """The wire form of `SessionReply`. Raises SessionExists, SessionNotFound (parent), SessionBusy, QueueFull."""
        name = self._service.ids.session() if name is None else check_name(name, "id")
        if parent is None:
            entry = self.directory.add(tenant, name, hints)
            return await self.open(entry, lambda: self.client.open(entry.session, hints=hints))
        with self.using(tenant, parent) as source:
            fork = self.directory.add(tenant, name, hints, parent=parent)
            return await self.open(fork, lambda: self.client.open(fork.session, parent=source.session, hints=hints))

    async def told(self, entry: Entry) -> dict[str, Any]:
        """The wire form of `SessionReply`."""
        return replies.with_stats(self.summary(entry), await self.client.stats(entry.session))

    def summary(self, entry: Entry) -> dict[str, Any]:
        """The wire form of `SessionSummary`."""
        return replies.summary(entry, self.directory.expires_in_s(entry))

    async def generate(self, tenant: str, name: str, asked: SessionGenerate) -> AsyncGenerator[SessionEvent, None]:
        """The events, while the session is in use."""
        with self.using(tenant, name) as entry:
            async with aclosing(closable(self.client.generate(entry.session, asked))) as events:
                async for event in events:
                    yield event

    async def export(self, tenant: str, name: str) -> AsyncGenerator[bytes, None]:
        """The pieces, while the session is in use."""
        with self.using(tenant, name) as entry:
            async with aclosing(closable(self.client.export(entry.session))) as pieces:
                async for piece in pieces:
                    yield piece


@contextmanager
def _in_words_of_the_body() -> Iterator[None]:
    """What the engine refuses is named as its client sent it."""
    try:
        yield
    except InvalidRequest as error:
        if error.param in _FIELDS:
            param = _FIELDS[error.param]
            raise InvalidRequest(f"{param}: {error}", param) from error
        raise
