"""The bounds of a boundary."""

from __future__ import annotations

import msgspec


class BoundaryLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides are built with the same."""

    max_calls: int = 4096  # under way at once; one more is refused with QueueFull
    answer_s: float = 30.0  # longest wait for the answer to a call that computes nothing
    piece_s: float = 120.0  # longest wait for the next piece of a session, or for somebody to take one
    heartbeat_s: float = 2.0  # how often the host lets itself be heard
    silence_s: float = 30.0  # without a frame for so long, the engine counts as hung
    loading_silence_s: float = 300.0  # the same while it loads: a library may hold the interpreter for long
