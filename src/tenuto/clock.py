"""Time as an argument: a real clock, and a virtual one that a simulation drives.

Rooms never read the system's time; they are handed a `Clock`. The virtual clock is an asyncio event loop
whose time jumps to the next timer as soon as nothing is ready to run, so that hours of waiting
simulate in milliseconds and the order of events depends on nothing but the program and its seed.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    """Monotonic seconds for measuring, a calendar time for people, and sleeping."""

    def now(self) -> float:
        """Monotonic seconds from an arbitrary origin."""
        ...

    def today(self) -> datetime:
        """Calendar time, timezone-aware, in the user's zone."""
        ...

    async def sleep(self, delay_s: float) -> None: ...


class RealClock:
    """The system's clock."""

    def now(self) -> float:
        return time.monotonic()

    def today(self) -> datetime:
        return datetime.now().astimezone()

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)


class VirtualClock:
    """Reads the time of the running `VirtualTimeLoop` (see `run_virtual`).

    Args:
        start: calendar time at virtual second 0.
    """

    def __init__(self, start: datetime = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)) -> None:
        self._start = start

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def today(self) -> datetime:
        return self._start + timedelta(seconds=self.now())

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)


class _JumpingSelector(selectors.DefaultSelector):
    """Instead of blocking until the next timer, moves virtual time there."""

    def __init__(self) -> None:
        super().__init__()
        self.time_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            # No timer and nothing ready: in a closed simulation nobody is left to wake us.
            raise RuntimeError("virtual time: every task waits for something that never happens (deadlock)")
        self.time_s += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose `time()` is virtual. No threads and no sockets: both live in real time."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.time_s


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time, like `asyncio.run`."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
