"""Follows one JSON value as its text streams, strictly as RFC 8259 says, in runs: every character is looked at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, TypeAlias

MAX_DEPTH = 200
_MAX_WORD = 1_000  # characters of a number

_STRING_RUN = re.compile(r'(?:[^"\\\x00-\x1f]|\\["\\/bfnrt])*')
_SPACE_RUN = re.compile(r"[ \t\n\r]*")
_WORD_RUN = re.compile(r"[-+.0-9A-Za-z]*")
_HEX_RUN = re.compile(r"[0-9A-Fa-f]{0,4}")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")

_Place: TypeAlias = Literal[
    "value", "first_item", "first_key", "key", "colon", "next", "string", "escape", "hex", "word"
]


def is_json_number(word: str) -> bool:
    return _NUMBER.fullmatch(word) is not None


class JsonScanner:
    """From a value's first character, white space before it aside, to its last.

    A number outside any bracket ends where something else begins; that is left alone.

    Attributes:
        state: `open` while the value goes on; `broken`: it is no JSON, or nested more than MAX_DEPTH deep.
    """

    def __init__(self) -> None:
        self.state: Literal["open", "closed", "broken"] = "open"
        self._place: _Place = "value"
        self._closers: list[str] = []
        self._is_key = False
        self._num_hex = 0
        self._word = ""
        self._steps: dict[_Place, Callable[[str, int], int]] = {
            "value": self._value,
            "first_item": self._first,
            "first_key": self._first,
            "key": self._key,
            "colon": self._colon,
            "next": self._next,
            "string": self._string,
            "escape": self._escape,
            "hex": self._hex,
            "word": self._in_word,
        }

    def feed(self, text: str, at: int) -> int:
        """Go on at that place; returns the place after the last character taken. What breaks it is not taken."""
        while at < len(text) and self.state == "open":
            at = self._steps[self._place](text, at)
        return at

    def _break(self, at: int) -> int:
        self.state = "broken"
        return at

    def _end_value(self) -> None:
        if self._closers:
            self._place = "next"
        else:
            self.state = "closed"

    def _value(self, text: str, at: int) -> int:
        at = after_space(text, at)
        if at == len(text):
            return at
        character = text[at]
        if character == '"':
            self._place, self._is_key = "string", False
        elif character in "{[":
            self._closers.append("}" if character == "{" else "]")
            self._place = "first_key" if character == "{" else "first_item"
            if len(self._closers) > MAX_DEPTH:
                return self._break(at)
        elif character in "-0123456789tfn":
            self._place, self._word = "word", ""
            return at
        else:
            return self._break(at)
        return at + 1

    def _first(self, text: str, at: int) -> int:
        """After an opening bracket: it may close at once."""
        at = after_space(text, at)
        if at == len(text):
            return at
        if text[at] == self._closers[-1]:
            self._closers.pop()
            self._end_value()
            return at + 1
        self._place = "key" if self._place == "first_key" else "value"
        return at

    def _key(self, text: str, at: int) -> int:
        at = after_space(text, at)
        if at == len(text):
            return at
        if text[at] != '"':
            return self._break(at)
        self._place, self._is_key = "string", True
        return at + 1

    def _colon(self, text: str, at: int) -> int:
        at = after_space(text, at)
        if at == len(text):
            return at
        if text[at] != ":":
            return self._break(at)
        self._place = "value"
        return at + 1

    def _next(self, text: str, at: int) -> int:
        at = after_space(text, at)
        if at == len(text):
            return at
        if text[at] == ",":
            self._place = "key" if self._closers[-1] == "}" else "value"
        elif text[at] == self._closers[-1]:
            self._closers.pop()
            self._end_value()
        else:
            return self._break(at)
        return at + 1

    def _string(self, text: str, at: int) -> int:
        at = _end(_STRING_RUN, text, at)
        if at == len(text):
            return at
        if text[at] == "\\":
            self._place = "escape"
        elif text[at] != '"':
            return self._break(at)
        elif self._is_key:
            self._place = "colon"
        else:
            self._end_value()
        return at + 1

    def _escape(self, text: str, at: int) -> int:
        if text[at] == "u":
            self._place, self._num_hex = "hex", 4
        elif text[at] in '"\\/bfnrt':
            self._place = "string"
        else:
            return self._break(at)
        return at + 1

    def _hex(self, text: str, at: int) -> int:
        end = min(_end(_HEX_RUN, text, at), at + self._num_hex)
        if end == at:
            return self._break(at)
        self._num_hex -= end - at
        if not self._num_hex:
            self._place = "string"
        return end

    def _in_word(self, text: str, at: int) -> int:
        end = min(_end(_WORD_RUN, text, at), at + _MAX_WORD + 1)
        self._word += text[at:end]
        if len(self._word) > _MAX_WORD:
            return self._break(end)
        if end == len(text):
            return end
        if self._word not in ("true", "false", "null") and not is_json_number(self._word):
            return self._break(end)
        self._end_value()
        return end


def after_space(text: str, at: int) -> int:
    """The place of the next character that is no white space of JSON."""
    return _end(_SPACE_RUN, text, at)


def _end(run: re.Pattern[str], text: str, at: int) -> int:
    found = run.match(text, at)
    assert found is not None, "a run may be empty"
    return found.end()
