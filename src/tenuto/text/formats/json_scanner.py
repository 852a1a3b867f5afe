"""Follows one JSON value as its text streams, strictly as RFC 8259 says."""

from __future__ import annotations

import re

from tenuto.text.formats.nested import NestedText, end_of

_STRING_RUN = re.compile(r'(?:[^"\\\x00-\x1f]|\\["\\/bfnrt])*')
_SPACE_RUN = re.compile(r"[ \t\n\r]*")
_WORD_RUN = re.compile(r"[-+.0-9A-Za-z]*")
_HEX_RUN = re.compile(r"[0-9A-Fa-f]{0,4}")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")


def is_json_number(word: str) -> bool:
    return _NUMBER.fullmatch(word) is not None


class JsonScanner(NestedText):
    def __init__(self) -> None:
        steps = {
            "value": self._value,
            "item": self._value,
            "first_item": self._first,
            "first_key": self._first,
            "key": self._key,
            "string": self._string,
            "escape": self._escape,
            "hex": self._hex,
        }
        super().__init__(steps, space=_SPACE_RUN, word=_WORD_RUN)
        self._is_key = False
        self._num_hex = 0

    def _value(self, text: str, at: int) -> int:
        at = after_space(text, at)
        if at == len(text):
            return at
        character = text[at]
        if character == '"':
            self._place, self._is_key = "string", False
            return at + 1
        if character in "{[":
            return self._open(character, at)
        if character in "-0123456789tfn":
            return self._begin_word(at)
        return self._break(at)

    def _first(self, text: str, at: int) -> int:
        """After an opening bracket: it may close at once."""
        at = after_space(text, at)
        if at == len(text):
            return at
        if text[at] == self._closers[-1]:
            return self._close(at)
        self._place = "key" if self._place == "first_key" else "item"
        return at

    def _key(self, text: str, at: int) -> int:
        at = after_space(text, at)
        if at == len(text):
            return at
        if text[at] != '"':
            return self._break(at)
        self._place, self._is_key = "string", True
        return at + 1

    def _string(self, text: str, at: int) -> int:
        at = end_of(_STRING_RUN, text, at)
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
        end = min(end_of(_HEX_RUN, text, at), at + self._num_hex)
        if end == at:
            return self._break(at)
        self._num_hex -= end - at
        if not self._num_hex:
            self._place = "string"
        return end

    def _spell(self, word: str) -> bool:
        return word in ("true", "false", "null") or is_json_number(word)


def after_space(text: str, at: int) -> int:
    """The place of the next character that is no white space of JSON."""
    return end_of(_SPACE_RUN, text, at)
