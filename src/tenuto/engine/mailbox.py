"""What one waits for, in order."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """A queue for one reader, on one event loop, whose bound is the writer's to keep. With every token of every stream
    going through, it is worth that it costs a third of `asyncio.Queue`, which serves many readers and writers."""

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> None:
        self._items.append(item)
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def take(self) -> T:
        """The next item, once it is there."""
        items = self._items
        while not items:
            assert self._waiter is None, "a mailbox has one reader"
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return items.popleft()
