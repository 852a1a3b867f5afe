"""Identifiers, each its own type, and where new ones come from.

Ids are drawn from an `IdSource` that is passed in, so that a seed replays a run to the letter.
"""

from __future__ import annotations

import random
from typing import NewType

TokenId = NewType("TokenId", int)
BlockId = NewType("BlockId", int)
SessionId = NewType("SessionId", str)
RequestId = NewType("RequestId", str)
RunId = NewType("RunId", str)
CallId = NewType("CallId", str)

_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"


class IdSource:
    """Draws fresh ids, e.g. `sess-4k2j9x0qw1ab`; 12 characters of base 36 (62 bits) never collide in practice.

    Args:
        seed: replays the same ids; None takes the operating system's entropy.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed) if seed is not None else random.SystemRandom()

    def _fresh(self, prefix: str, length: int = 12) -> str:
        number = self._random.randrange(len(_ALPHABET) ** length)  # in one draw: each asks the operating system
        digits = []
        for _ in range(length):
            number, digit = divmod(number, len(_ALPHABET))
            digits.append(_ALPHABET[digit])
        return prefix + "".join(digits)

    def session(self) -> SessionId:
        return SessionId(self._fresh("sess-"))

    def request(self) -> RequestId:
        return RequestId(self._fresh("req-"))

    def run(self) -> RunId:
        return RunId(self._fresh("run-"))

    def call(self) -> CallId:
        """Nine letters and digits: the one form that every chat template we know accepts."""
        return CallId(self._fresh("", 9))
