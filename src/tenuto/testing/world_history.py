"""What happened in a simulated world: one line an event, a digest over all of them, and the first violation."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable


class Violation(AssertionError):
    """The simulated system broke a promise. The message says which one, and how to replay it."""


class History:
    """Every event goes into the digest, so two runs with equal digests did the same things in the same order.

    Args:
        trace: called with each event's line; None keeps none of them.
    """

    def __init__(self, trace: Callable[[str], None] | None = None) -> None:
        self.num_events = 0
        self.counts: Counter[str] = Counter()  # outcomes and faults by name
        self.violation: BaseException | None = None
        self._digest = hashlib.blake2b(digest_size=16)
        self._trace = trace

    def add(self, now: float, *parts: object) -> None:
        """Record an event. Parts must print the same in every process: no sets, no addresses."""
        line = f"{now:.6f} " + " ".join(map(str, parts))
        self._digest.update(line.encode() + b"\n")
        self.num_events += 1
        if self._trace is not None:
            self._trace(line)

    def count(self, name: str) -> None:
        self.counts[name] += 1

    def violate(self, error: BaseException) -> None:
        """Keep the first violation; whoever drives the world finds it here."""
        if self.violation is None:
            self.violation = error

    def expect(self, holds: bool, promise: str) -> None:
        """Raises Violation, and keeps it, if a promise does not hold."""
        if not holds:
            error = Violation(promise)
            self.violate(error)
            raise error

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()
