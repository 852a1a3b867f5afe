"""What is written to a connection in one pass of the event loop leaves in one piece."""

from __future__ import annotations

import asyncio
from typing import Any

_MAX_GATHERED_BYTES = 1 << 16  # more leaves at once, so that the transport's own bounds hold


class GatheringTransport(asyncio.Transport):
    """Writes to another transport, once in a pass of the event loop.

    A web server writes a reply's head, its first words and its end one by one. Each would wake the reader, which on a
    busy machine then waits for a processor, and the writer after it; together they wake it once.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._pieces: list[bytes] = []
        self._num_bytes = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._pieces:
            self._loop.call_soon(self._flush)
        self._pieces.append(bytes(data))  # a buffer may be changed by its owner
        self._num_bytes += len(data)
        if self._num_bytes > _MAX_GATHERED_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._pieces.clear()
        self._transport.abort()

    def _flush(self) -> None:
        if self._pieces:
            pieces, self._pieces, self._num_bytes = self._pieces, [], 0
            self._transport.write(b"".join(pieces))

    # As they are

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()
