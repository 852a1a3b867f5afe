"""What a host has to say, gathered for as long as the event loop is busy, then written at once."""

from __future__ import annotations

import asyncio
from typing import Any

from tenuto.engine.boundary import messages as m
from tenuto.engine.boundary.frames import MAX_FRAME_BYTES
from tenuto.engine.boundary.link import Link
from tenuto.protocol.engine import TokenDelta


class Outbox:
    """Keeps the order of what is added. The deltas of one step, which all come up in one pass of the event loop, become
    one frame: eight streams wake the reader once.

    While the reader does not keep up, what is added waits here: deltas gather to fewer, larger frames. That is bounded
    by what the calls under way may generate.
    """

    def __init__(self, link: Link[Any], max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._link = link
        self._max_frame_bytes = max_frame_bytes
        self._messages: list[m.FromHost] = []
        self._deltas: list[tuple[int, TokenDelta]] | None = None  # of the last message
        self._is_scheduled = False

    def add(self, message: m.FromHost) -> None:
        self._deltas = None
        self._messages.append(message)
        self._schedule()

    def add_delta(self, call: int, delta: TokenDelta) -> None:
        if self._deltas is None:
            self._deltas = []
            self._messages.append(m.Deltas(self._deltas))
            self._schedule()
        self._deltas.append((call, delta))

    def flush(self) -> None:
        """Write all; what the reader does not take at once waits in the transport."""
        messages, self._messages, self._deltas, self._is_scheduled = self._messages, [], None, False
        payloads: list[bytes] = []
        for message in messages:
            self._encode(message, payloads)
        if payloads:
            self._link.write(payloads)

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._flush_if_read)

    def _flush_if_read(self) -> None:
        if not self._link.is_paused:  # otherwise the link says when it is not
            self.flush()

    def _encode(self, message: m.FromHost, payloads: list[bytes]) -> None:
        payload = m.encode(message)
        if len(payload) <= self._max_frame_bytes:
            payloads.append(payload)
            return
        assert isinstance(message, m.Deltas) and len(message.items) > 1, "one message is larger than a frame"
        half = len(message.items) // 2
        self._encode(m.Deltas(message.items[:half]), payloads)
        self._encode(m.Deltas(message.items[half:]), payloads)
