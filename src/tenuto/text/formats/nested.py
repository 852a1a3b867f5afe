"""What JSON and Python literals have in common: brackets in brackets, followed as their text streams.

Text is taken in runs: every character is looked at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

MAX_DEPTH = 200
_MAX_WORD = 1_000  # characters of a number
CLOSERS = {"{": "}", "[": "]", "(": ")"}

Step: TypeAlias = Callable[[str, int], int]
"""Takes text from a place on; returns the place after the last character taken. What breaks the value is not taken."""


class NestedText:
    """From a value's first character, white space before it aside, to its last.

    A language adds the steps of its places. Those that all have: `value`, where one begins; `first_item` and
    `first_key` after an opening bracket; `item` and `key` after a comma; `colon`; `next` after a value in a bracket;
    `word` in a number or the like, which ends where something else begins; that is left alone.

    Args:
        space, word: runs of white space, and of what a word may hold; both may be empty.

    Attributes:
        state: `open` while the value goes on; `broken`: it is none, or nested more than MAX_DEPTH deep.
    """

    def __init__(self, steps: Mapping[str, Step], *, space: re.Pattern[str], word: re.Pattern[str]) -> None:
        self.state: Literal["open", "closed", "broken"] = "open"
        self._place = "value"
        self._closers: list[str] = []
        self._word = ""
        self._space_run, self._word_run = space, word
        self._steps: dict[str, Step] = {"colon": self._colon, "next": self._next, "word": self._in_word, **steps}

    def feed(self, text: str, at: int) -> int:
        """Go on at that place; returns the place after the last character taken. What breaks it is not taken."""
        while at < len(text) and self.state == "open":
            at = self._steps[self._place](text, at)
        return at

    # For a language

    def _spell(self, word: str) -> bool:
        """Whether a word is a value."""
        raise NotImplementedError

    def _opens(self, closer: str) -> None:
        """A bracket opens."""

    def _closes(self, closer: str) -> None:
        """A bracket closes."""

    def _colons(self) -> None:
        """A key is over."""

    # What all have in common

    def _break(self, at: int) -> int:
        self.state = "broken"
        return at

    def _after_space(self, text: str, at: int) -> int:
        return end_of(self._space_run, text, at)

    def _end_value(self) -> None:
        if self._closers:
            self._place = "next"
        else:
            self.state = "closed"

    def _open(self, bracket: str, at: int) -> int:
        self._closers.append(CLOSERS[bracket])
        self._place = "first_key" if bracket == "{" else "first_item"
        self._opens(self._closers[-1])
        return self._break(at) if len(self._closers) > MAX_DEPTH else at + 1

    def _close(self, at: int) -> int:
        self._closes(self._closers.pop())
        self._end_value()
        return at + 1

    def _begin_word(self, at: int) -> int:
        self._place, self._word = "word", ""
        return at

    def _colon(self, text: str, at: int) -> int:
        at = self._after_space(text, at)
        if at == len(text):
            return at
        if text[at] != ":":
            return self._break(at)
        self._colons()
        self._place = "value"
        return at + 1

    def _next(self, text: str, at: int) -> int:
        at = self._after_space(text, at)
        if at == len(text):
            return at
        if text[at] == self._closers[-1]:
            return self._close(at)
        if text[at] != ",":
            return self._break(at)
        self._place = "key" if self._closers[-1] == "}" else "item"
        return at + 1

    def _in_word(self, text: str, at: int) -> int:
        end = min(end_of(self._word_run, text, at), at + _MAX_WORD + 1)
        self._word += text[at:end]
        if len(self._word) > _MAX_WORD:
            return self._break(end)
        if end == len(text):
            return end
        if not self._spell(self._word):
            return self._break(end)
        self._end_value()
        return end


def end_of(run: re.Pattern[str], text: str, at: int) -> int:
    """Where a run that begins there ends."""
    found = run.match(text, at)
    assert found is not None, "a run may be empty"
    return found.end()
