"""A boundary in one process and without sockets, so that a simulation can put an engine behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from tenuto.clock import Clock
from tenuto.engine.boundary import BoundaryLimits, EngineHost, RemoteEngineClient
from tenuto.protocol.engine import EngineClient

Cut = Callable[[bytes], Iterable[bytes]]


class MemoryTransport(asyncio.Transport):
    """One end of a connection: what is written arrives at the other end's protocol in a later pass of the event loop.

    Args:
        cut: in which pieces it arrives; None: as it was written.
    """

    def __init__(self, protocol: asyncio.Protocol, cut: Cut | None = None) -> None:
        super().__init__()
        self.protocol = protocol
        self._cut = cut
        self._other: MemoryTransport | None = None
        self._is_closing = False

    def connect(self, other: MemoryTransport) -> None:
        self._other, other._other = other, self
        for end in (self, other):
            end.protocol.connection_made(end)

    def write(self, data: bytes | bytearray | memoryview[int]) -> None:
        if self._is_closing:
            return
        for piece in [bytes(data)] if self._cut is None else self._cut(bytes(data)):
            self._later(MemoryTransport.deliver, piece)

    def deliver(self, data: bytes) -> None:
        """Bytes arrive here; a test may make some up."""
        if not self._is_closing:
            self.protocol.data_received(data)

    def close(self) -> None:
        if not self._is_closing:
            self._later(MemoryTransport.close)
            self._is_closing = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self._is_closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is held back here."""

    def _later(self, what: Callable[..., None], *given: bytes) -> None:
        assert self._other is not None
        asyncio.get_running_loop().call_soon(what, self._other, *given)


@asynccontextmanager
async def across(
    engine: EngineClient, clock: Clock, *, cut: Cut | None = None, limits: BoundaryLimits = BoundaryLimits()
) -> AsyncIterator[RemoteEngineClient]:
    """The engine behind a boundary. It is the caller's: it is not stopped at the end of the block.

    Args:
        cut: in which pieces bytes arrive, on both sides.
    """
    host = EngineHost(clock, limits=limits)
    client = RemoteEngineClient(clock, limits=limits)
    MemoryTransport(client.link, cut).connect(MemoryTransport(host.link, cut))
    host.begin()
    await host.start(engine)
    try:
        await client.ready()
        yield client
    finally:
        await client.aclose()
        await host.stop()
