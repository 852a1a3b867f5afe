"""Which sessions there are, whose they are, and when nobody used one for too long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import structlog

from tenuto.clock import Clock
from tenuto.errors import EngineClosed, QueueFull, SessionBusy, SessionExists, SessionNotFound, TenutoError
from tenuto.ids import SessionId
from tenuto.protocol.hints import RunHints
from tenuto.server.limits import SessionLimits
from tenuto.server.sessions.names import session_of

_log = structlog.get_logger("tenuto.server")


@dataclass(eq=False)
class Entry:
    """One named session."""

    tenant: str
    name: str
    session: SessionId
    hints: RunHints
    by_chat: bool  # chat opened it, when it first came with this name
    parent: str | None
    created: int  # Unix seconds
    last_used_s: float  # on the clock
    keep_until_s: float = 0.0  # on the clock: a suspended session is not idle before its wait is over
    num_calls: int = 0  # that use it now
    is_closing: bool = False


class SessionDirectory:
    """The names of all sessions over HTTP, those that chat opened among them.

    A session that nobody used for `idle_s` is closed, whether or not anything else happens. A tenant has at most
    `max_per_tenant`. Other engine sessions are nobody's here.

    Args:
        close: closes an engine session and all that others know of it; raises SessionNotFound if there is none.
    """

    def __init__(self, clock: Clock, limits: SessionLimits, close: Callable[[SessionId], Awaitable[None]]) -> None:
        self._clock = clock
        self._limits = limits
        self._close = close
        self._entries: dict[str, dict[str, Entry]] = {}  # by tenant, then name, in order of creation
        self._sweep: asyncio.Task[None] | None = None

    def find(self, tenant: str, name: str) -> Entry:
        """Raises SessionNotFound."""
        entry = self._entries.get(tenant, {}).get(name)
        if entry is None or entry.is_closing or self._is_expired(entry):
            raise SessionNotFound(f"there is no session {name!r}: it was never opened, or it was closed")
        return entry

    def add(self, tenant: str, name: str, hints: RunHints, *, parent: str | None = None) -> Entry:
        """A new name; what stands for it in the engine is the caller's to open.

        Raises SessionExists, and QueueFull if the tenant has too many.
        """
        entries = self._entries.setdefault(tenant, {})
        if name in entries:
            raise SessionExists(f"session {name!r} exists already; delete it first, or take another id")
        if len(entries) >= self._limits.max_per_tenant:
            raise QueueFull(
                f"{len(entries)} sessions are open already, which is the most here; delete some, or wait until unused "
                f"ones are closed after {self._limits.idle_s:g} s"
            )
        return self._put(tenant, name, hints, parent=parent, by_chat=False)

    async def for_chat(self, tenant: str, name: str) -> Entry:
        """The session of this name, which chat opens if need be. The longest unused of chat's makes room for it.

        Raises QueueFull if there is none.
        """
        entries = self._entries.setdefault(tenant, {})
        entry = entries.get(name)
        if entry is not None and not entry.is_closing and not self._is_expired(entry):
            entry.last_used_s = self._clock.now()
            return entry
        if entry is not None:
            await self.close(entry)
        if len(entries) >= self._limits.max_per_tenant:
            idle = [one for one in entries.values() if one.by_chat and not one.num_calls and not one.is_closing]
            if not idle:
                raise QueueFull(f"{len(entries)} sessions are open already, which is the most here; delete some")
            await self.close(min(idle, key=lambda one: one.last_used_s))
        found = self._entries.get(tenant, {}).get(name)  # another request of the same name may have been faster
        return found or self._put(tenant, name, RunHints(tenant=tenant), parent=None, by_chat=True)

    @contextmanager
    def using(self, entry: Entry) -> Iterator[None]:
        """For the block the session is in use."""
        entry.num_calls += 1
        try:
            yield
        finally:
            entry.num_calls -= 1
            entry.last_used_s = self._clock.now()

    def remove(self, entry: Entry) -> None:
        """Forget a name whose engine session is gone, or was never opened."""
        if self.is_known(entry):
            entries = self._entries[entry.tenant]
            del entries[entry.name]
            if not entries:
                del self._entries[entry.tenant]

    async def close(self, entry: Entry) -> None:
        """Close the engine's session and forget the name. Raises SessionBusy if that is under way already."""
        if entry.is_closing:
            raise SessionBusy(f"session {entry.name!r} is being closed")
        entry.is_closing = True
        try:
            await self._close(entry.session)
        except SessionNotFound:
            pass  # the engine gave it up before
        except BaseException:
            entry.is_closing = False
            raise
        self.remove(entry)

    def is_known(self, entry: Entry) -> bool:
        return self._entries.get(entry.tenant, {}).get(entry.name) is entry

    async def close_forgotten(self, entry: Entry) -> None:
        """After a call that may have opened the engine's session: who deleted the name before found none to close."""
        if entry.name not in self._entries.get(entry.tenant, {}):
            with suppress(TenutoError):
                await self._close(entry.session)

    def page(self, tenant: str, limit: int, after: str | None) -> tuple[list[Entry], bool]:
        """A tenant's sessions, newest first, after the one named; and whether there are more.

        Raises SessionNotFound if there is no session of the name.
        """
        newest = [e for e in reversed(self._entries.get(tenant, {}).values()) if not self._is_expired(e)]
        start = 0 if after is None else newest.index(self.find(tenant, after)) + 1
        return newest[start : start + limit], len(newest) > start + limit

    def expires_in_s(self, entry: Entry) -> float:
        """Until it is closed, if nobody uses it."""
        return max(0.0, self._end(entry) - self._clock.now())

    def _put(self, tenant: str, name: str, hints: RunHints, *, parent: str | None, by_chat: bool) -> Entry:
        entry = Entry(
            tenant=tenant,
            name=name,
            session=session_of(tenant, name),
            hints=hints,
            by_chat=by_chat,
            parent=parent,
            created=int(self._clock.today().timestamp()),
            last_used_s=self._clock.now(),
        )
        self._entries.setdefault(tenant, {})[name] = entry
        if self._sweep is None or self._sweep.done():
            self._sweep = asyncio.create_task(self._close_unused(), name="tenuto-idle-sessions")
        return entry

    def _end(self, entry: Entry) -> float:
        return max(entry.last_used_s + self._limits.idle_s, entry.keep_until_s)

    def _is_expired(self, entry: Entry) -> bool:
        return not entry.num_calls and self._clock.now() >= self._end(entry)

    async def _close_unused(self) -> None:
        """As long as there are sessions."""
        while self._entries:
            every = [entry for entries in self._entries.values() for entry in entries.values()]
            waits = [self._end(entry) - self._clock.now() for entry in every if not entry.num_calls]
            await self._clock.sleep(min(max(0.01, min(waits, default=self._limits.idle_s)), self._limits.idle_s))
            for entry in every:
                if self._is_expired(entry) and not entry.is_closing:
                    try:
                        await self.close(entry)
                    except EngineClosed:
                        return
                    except Exception as error:  # noqa: BLE001 - the others are closed all the same
                        _log.error("session_not_closed", error=type(error).__name__)
