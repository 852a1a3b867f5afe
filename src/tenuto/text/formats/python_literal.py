"""Turns one Python literal into JSON text as it streams.

Source of the forms: the Python reference, "Literals". Strings (without prefix, not tripled), numbers, the three words
in Python's and in JSON's spelling, lists, tuples (as lists) and dicts with strings as keys.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Literal, TypeAlias

from tenuto.text.formats.json_scanner import MAX_DEPTH, is_json_number
from tenuto.text.formats.json_text import inside_string
from tenuto.text.formats.reader import ReaderState, after_space

_MAX_WORD = 1_000
_WORD_RUN = re.compile(r"[-+.\w]*")
_STRING_RUNS = {quote: re.compile(f"[^{quote}\\\\]*") for quote in "'\""}
_WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_CLOSER = {"[": "]", "(": ")", "{": "}"}
_ESCAPES = {"\n": "", "\\": "\\\\", "'": "'", '"': '\\"', "/": "/", "a": "\\u0007", "b": "\\b", "f": "\\f"}
_ESCAPES |= {"n": "\\n", "r": "\\r", "t": "\\t", "v": "\\u000b"}
_NUM_HEX = {"x": 2, "u": 4, "U": 8}

_Place: TypeAlias = Literal["value", "item", "key", "colon", "next", "string", "escape", "code", "word"]


class PythonLiteral:
    """From a literal's first character, white space before it aside, to its last.

    Attributes:
        state: `broken`: it is no literal of these forms, or nested too deep.
        json: pieces of the JSON text, in order; for the caller to take. Escapes may be those of lone surrogates.
    """

    def __init__(self) -> None:
        self.state: ReaderState = "open"
        self.json: list[str] = []
        self._place: _Place = "value"
        self._closers: list[str] = []
        self._is_empty = True  # nothing stands in the innermost bracket yet
        self._is_key = False
        self._quote = ""
        self._escape_text = ""  # of an escape by code, what stands behind the backslash
        self._word = ""
        self._steps: dict[_Place, Callable[[str, int], int]] = {
            "value": self._value,
            "item": self._item,
            "key": self._item,
            "colon": self._colon,
            "next": self._next,
            "string": self._string,
            "escape": self._escape,
            "code": self._code,
            "word": self._in_word,
        }

    def feed(self, text: str, at: int) -> int:
        """Go on at that place; returns the place after the last character taken."""
        while at < len(text) and self.state == "open":
            at = self._steps[self._place](text, at)
        return at

    def _break(self, at: int) -> int:
        self.state = "broken"
        return at

    def _end_value(self) -> None:
        if self._closers:
            self._place, self._is_empty = "next", False
        else:
            self.state = "closed"

    def _value(self, text: str, at: int) -> int:
        at = after_space(text, at)
        if at == len(text):
            return at
        character = text[at]
        if character in "'\"":
            self._begin_string(character, is_key=False)
        elif character in _CLOSER:
            self._closers.append(_CLOSER[character])
            self._is_empty = True
            self._place = "key" if character == "{" else "item"
            self.json.append("{" if character == "{" else "[")
            if len(self._closers) > MAX_DEPTH:
                return self._break(at)
        elif character.isalnum() or character in "-+.":
            self._place, self._word = "word", ""
            return at
        else:
            return self._break(at)
        return at + 1

    def _begin_string(self, quote: str, is_key: bool) -> None:
        self._place, self._quote, self._is_key = "string", quote, is_key
        self.json.append('"')

    def _item(self, text: str, at: int) -> int:
        """In a bracket, where an item or its end may stand: a comma before the end says nothing."""
        at = after_space(text, at)
        if at == len(text):
            return at
        if text[at] == self._closers[-1]:
            self._close()
            return at + 1
        if not self._is_empty:
            self.json.append(", ")
        if self._place == "item":
            self._place = "value"
            return at
        if text[at] not in "'\"":
            return self._break(at)
        self._begin_string(text[at], is_key=True)
        return at + 1

    def _close(self) -> None:
        self.json.append("}" if self._closers.pop() == "}" else "]")
        self._end_value()

    def _colon(self, text: str, at: int) -> int:
        at = after_space(text, at)
        if at == len(text):
            return at
        if text[at] != ":":
            return self._break(at)
        self.json.append(": ")
        self._place = "value"
        return at + 1

    def _next(self, text: str, at: int) -> int:
        at = after_space(text, at)
        if at == len(text):
            return at
        if text[at] == ",":
            self._place = "key" if self._closers[-1] == "}" else "item"
        elif text[at] == self._closers[-1]:
            self._close()
        else:
            return self._break(at)
        return at + 1

    def _string(self, text: str, at: int) -> int:
        found = _STRING_RUNS[self._quote].match(text, at)
        assert found is not None
        if found[0]:
            self.json.append(inside_string(found[0]))
        at = found.end()
        if at == len(text):
            return at
        if text[at] == "\\":
            self._place = "escape"
            return at + 1
        self.json.append('"')
        if self._is_key:
            self._place = "colon"
        else:
            self._end_value()
        return at + 1

    def _escape(self, text: str, at: int) -> int:
        character = text[at]
        self._place = "string"
        if character in _ESCAPES:
            self.json.append(_ESCAPES[character])
        elif character in _NUM_HEX or character in "01234567":
            self._place, self._escape_text = "code", ""
            return at
        else:  # Python leaves the backslash in
            self.json.append("\\\\" + inside_string(character))
        return at + 1

    def _code(self, text: str, at: int) -> int:
        """An escape by code: `x`, `u` or `U` with their hexadecimal digits, or up to three octal ones."""
        known, character = self._escape_text, text[at]
        if not known or known[0] in _NUM_HEX:
            if known and character not in "0123456789abcdefABCDEF":
                return self._break(at)
            self._escape_text += character
            if self._escape_text[0] in _NUM_HEX and len(self._escape_text) <= _NUM_HEX[self._escape_text[0]]:
                return at + 1
            if self._escape_text[0] in _NUM_HEX:
                self._end_code(int(self._escape_text[1:], 16))
            return at + 1
        if len(known) < 3 and character in "01234567":
            self._escape_text += character
            return at + 1
        self._end_code(int(known, 8))
        return at

    def _end_code(self, code: int) -> None:
        """Written as an escape where it may be a half of a surrogate pair, for the halves to find each other."""
        if code > 0x10FFFF:
            self.state = "broken"
            return
        self.json.append(f"\\u{code:04x}" if code < 0x20 or 0xD800 <= code < 0xE000 else inside_string(chr(code)))
        self._place = "string"

    def _in_word(self, text: str, at: int) -> int:
        found = _WORD_RUN.match(text, at)
        assert found is not None
        end = min(found.end(), at + _MAX_WORD + 1)
        self._word += text[at:end]
        if len(self._word) > _MAX_WORD:
            return self._break(end)
        if end == len(text):
            return end
        spelled = _WORDS.get(self._word) or _number(self._word)
        if spelled is None:
            return self._break(end)
        self.json.append(spelled)
        self._end_value()
        return end


def _number(word: str) -> str | None:
    """A Python number as JSON; None if it is none."""
    if is_json_number(word):
        return word
    if not word.isascii():
        return None
    try:
        return str(int(word, 0))
    except ValueError:
        pass
    try:
        value = float(word)
    except ValueError:
        return None
    return repr(value) if math.isfinite(value) else None
