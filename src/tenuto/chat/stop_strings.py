"""Ends a text before the first stop string, whatever pieces it comes in."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Holds back what may be the beginning of a stop string; lets the rest through.

    The stop string that is complete first wins, of those that end at one place the longest: so the result does not
    depend on how the text is cut into pieces. What is held back is shorter than the longest stop string.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        assert all(stops), "an empty stop string would end every text"
        self._stops = tuple(stops)
        self._held = ""
        self.matched = False
        self.found: str | None = None  # which one

    @property
    def is_holding(self) -> bool:
        """What came last may be the beginning of a stop string."""
        return bool(self._held)

    def push(self, text: str) -> str:
        """The text that is now certain to stand before any stop string. After a match: nothing."""
        if self.matched or not self._stops:
            return "" if self.matched else text
        text = self._held + text
        found = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.matched, self._held = True, ""
            end, at = min(found)
            self.found = text[at:end]
            return text[:at]
        num_held = max(self._overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - num_held :]
        return text[: len(text) - num_held]

    @staticmethod
    def _overlap(text: str, stop: str) -> int:
        """Length of the longest proper beginning of `stop` that `text` ends with."""
        return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)

    def flush(self) -> str:
        """No more text follows here: what was held back is no stop string."""
        held, self._held = self._held, ""
        return held
