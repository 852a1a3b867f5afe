"""Frames: a length of four bytes, then so many bytes. What arrives is cut anywhere, and need not be well formed."""

from __future__ import annotations

from tenuto.errors import EngineClosed

LENGTH_BYTES = 4
MAX_FRAME_BYTES = 32 * 1024 * 1024


def frame(payload: bytes) -> bytes:
    """The payload, with its length (big-endian) before it."""
    assert 0 < len(payload) <= MAX_FRAME_BYTES, f"a frame of {len(payload)} bytes"
    return len(payload).to_bytes(LENGTH_BYTES, "big") + payload


class FrameReader:
    """Puts frames together again. Holds at most one frame that is not whole, and what came with its beginning."""

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._pending = bytearray()
        self._start = 0  # of what was not taken yet

    @property
    def is_inside(self) -> bool:
        """Whether a frame has begun that is not whole."""
        return len(self._pending) > self._start

    def feed(self, data: bytes) -> None:
        self._pending += data

    def take(self) -> bytes | None:
        """The payload of the next frame, if it is whole.

        Raises EngineClosed for a length that no frame has; what comes after it has no meaning.
        """
        body = self._start + LENGTH_BYTES
        if len(self._pending) >= body:
            size = int.from_bytes(self._pending[self._start : body], "big")
            if not 0 < size <= self._max_frame_bytes:
                raise EngineClosed(
                    f"the boundary to the engine is broken: a frame of {size} bytes, where 1 to "
                    f"{self._max_frame_bytes} are allowed"
                )
            if len(self._pending) >= body + size:
                self._start = body + size
                return bytes(memoryview(self._pending)[body : self._start])
        del self._pending[: self._start]
        self._start = 0
        return None
