"""How much work is let in: requests at once, in all and of one tenant; and none once the server drains."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tenuto.clock import Clock
from tenuto.errors import EngineClosed, QueueFull

_MAX_RETRY_S = 60
_WEIGHT = 0.1  # of the newest request in the mean duration


class Admission:
    """Counts the requests that are being answered. Those of one event loop: no locks.

    What waits in the engine's queue is among them, so `max_requests` bounds the queue, and with it the time to the
    first token of a request that was let in.

    A refused client is told when its turn would come. With n requests let in that take d seconds each, one leaves every
    d / n seconds (Little's law); each refusal takes the next such moment, so that the refused do not all come back at
    once for the one place that became free.

    Args:
        max_tenant_requests: of these, at most so many of one tenant.
    """

    def __init__(self, clock: Clock, *, max_requests: int, max_tenant_requests: int) -> None:
        self._clock = clock
        self._max_requests = max_requests
        self._max_tenant_requests = min(max_tenant_requests, max_requests)
        self._of_tenant: Counter[str] = Counter()
        self._num_working = 0  # requests that were let in
        self._num_open = 0  # those, and others that a drain waits for
        self._mean_s = 1.0  # that a request takes
        self._promised_s = 0.0  # the turn that the last refused client was told
        self._draining = False
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def num_working(self) -> int:
        return self._num_working

    @property
    def is_draining(self) -> bool:
        return self._draining

    def begin_drain(self) -> None:
        """No more work is let in, for good."""
        self._draining = True

    async def idle(self) -> None:
        """Returns once no request is open."""
        await self._idle.wait()

    @contextmanager
    def opened(self) -> Iterator[None]:
        """A request that is let in without counting as work; a drain waits for it."""
        self._num_open += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._num_open -= 1
            if not self._num_open:
                self._idle.set()

    def check(self, tenant: str) -> None:
        """Raises EngineClosed while draining, and QueueFull with a time to come back if there is no place."""
        if self._draining:
            raise EngineClosed("the server is stopping; send the request to another one, or later")
        if self._num_working >= self._max_requests:
            raise QueueFull(f"{self._num_working} requests are being answered already", self.retry_after_s())
        if self._of_tenant[tenant] >= self._max_tenant_requests:
            raise QueueFull(
                f"{self._of_tenant[tenant]} requests of yours are being answered already", self.retry_after_s()
            )

    @contextmanager
    def working(self, tenant: str) -> Iterator[None]:
        """A place for a request that has just been checked."""
        self._num_working += 1
        self._of_tenant[tenant] += 1
        start_s = self._clock.now()
        try:
            with self.opened():
                yield
        finally:
            self._num_working -= 1
            self._of_tenant[tenant] -= 1
            if not self._of_tenant[tenant]:
                del self._of_tenant[tenant]
            self._mean_s += _WEIGHT * (self._clock.now() - start_s - self._mean_s)

    def retry_after_s(self) -> int:
        """When a client that is refused now shall come back; whole seconds, 1 to 60."""
        now = self._clock.now()
        spacing_s = self._mean_s / max(1, self._num_working)
        self._promised_s = min(max(now, self._promised_s) + spacing_s, now + _MAX_RETRY_S)
        return max(1, math.ceil(self._promised_s - now))
