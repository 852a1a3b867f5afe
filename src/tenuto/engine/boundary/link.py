"""One end of a boundary: messages in and out over a stream of bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar, cast

from tenuto.engine.boundary.frames import MAX_FRAME_BYTES, FrameReader, frame
from tenuto.errors import EngineClosed

HIGH_WATER_BYTES = 1 << 20  # written but not yet taken by the other side; above this the writer is asked to pause

In = TypeVar("In")


class Link(asyncio.Protocol, Generic[In]):
    """An asyncio protocol for any transport with `write`, `close` and `abort`.

    Args:
        decode: one frame's payload to a message; raises EngineClosed.
        receive: is told of every message, in order.
        lost: is told once that nothing more will come: why, or None if the other side has just ended.
        resumed: is told when more may be written after a pause.
    """

    def __init__(
        self,
        decode: Callable[[bytes], In],
        receive: Callable[[In], None],
        lost: Callable[[EngineClosed | None], None],
        resumed: Callable[[], None] = lambda: None,
        *,
        max_frame_bytes: int = MAX_FRAME_BYTES,
    ) -> None:
        self._decode = decode
        self._receive = receive
        self._lost = lost
        self._resumed = resumed
        self._frames = FrameReader(max_frame_bytes)
        self._transport: asyncio.Transport | None = None
        self._failure: EngineClosed | None = None
        self._may_write = asyncio.Event()
        self._is_over = False
        self.num_received = 0  # frames

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        self._may_write.set()

    def data_received(self, data: bytes) -> None:
        if self._failure is not None:
            return
        try:
            self._frames.feed(data)
            while (payload := self._frames.take()) is not None:
                self.num_received += 1
                self._receive(self._decode(payload))
        except EngineClosed as error:
            self.fail(error)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._may_write.set()  # whoever waits finds out by what follows
        failure = self._failure
        if failure is None and self._frames.is_inside:
            failure = EngineClosed("the boundary to the engine is broken: it ended in the middle of a frame")
        self._lost(failure)

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()
        self._resumed()

    # For the two sides

    @property
    def is_paused(self) -> bool:
        """The other side does not take what was written fast enough."""
        return not self._may_write.is_set()

    async def writable(self, timeout_s: float) -> None:
        """Wait until more may be written. If that takes too long the link fails."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._may_write.wait()
        except TimeoutError:
            self.fail(EngineClosed(f"the other side of the boundary to the engine took nothing for {timeout_s:g} s"))

    def write(self, payloads: Iterable[bytes]) -> None:
        """Encoded messages, each a frame; after the end they go nowhere."""
        if self._transport is not None and not self._is_over:
            self._transport.write(b"".join([frame(payload) for payload in payloads]))

    def fail(self, error: EngineClosed) -> None:
        """The link is of no use any more: end it, telling why."""
        if self._failure is None and not self._is_over:
            self._failure = error
            if self._transport is not None:
                self._transport.abort()
            else:
                self.connection_lost(None)

    def close(self) -> None:
        """End it after what was written."""
        if self._transport is not None:
            self._transport.close()
