"""Turns one Python literal into JSON text as it streams.

Source of the forms: the Python reference, "Literals". Strings (without prefix, not tripled), numbers, the three words
in Python's and in JSON's spelling, lists, tuples (as lists) and dicts with strings as keys.
"""

from __future__ import annotations

import math
import re

from tenuto.text.formats.json_scanner import is_json_number
from tenuto.text.formats.json_text import inside_string
from tenuto.text.formats.nested import CLOSERS, NestedText, end_of
from tenuto.text.formats.reader import SPACE_RUN

_WORD_RUN = re.compile(r"[-+.\w]*")
_STRING_RUNS = {quote: re.compile(f"[^{quote}\\\\]*") for quote in "'\""}
_WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_ESCAPES = {"\n": "", "\\": "\\\\", "'": "'", '"': '\\"', "/": "/", "a": "\\u0007", "b": "\\b", "f": "\\f"}
_ESCAPES |= {"n": "\\n", "r": "\\r", "t": "\\t", "v": "\\u000b"}
_NUM_HEX = {"x": 2, "u": 4, "U": 8}


class PythonLiteral(NestedText):
    """
    Attributes:
        json: pieces of the JSON text, in order; for the caller to take. Escapes may be those of lone surrogates.
    """

    def __init__(self) -> None:
        steps = {
            "value": self._value,
            "string": self._string,
            "escape": self._escape,
            "code": self._code,
        }
        steps |= dict.fromkeys(("first_item", "first_key", "item", "key"), self._item)
        super().__init__(steps, space=SPACE_RUN, word=_WORD_RUN)
        self.json: list[str] = []
        self._is_key = False
        self._quote = ""
        self._escape_text = ""  # of an escape by code, what stands behind the backslash

    def _value(self, text: str, at: int) -> int:
        at = self._after_space(text, at)
        if at == len(text):
            return at
        character = text[at]
        if character in "'\"":
            return self._begin_string(character, at, is_key=False)
        if character in CLOSERS:
            return self._open(character, at)
        if character.isalnum() or character in "-+.":
            return self._begin_word(at)
        return self._break(at)

    def _begin_string(self, quote: str, at: int, *, is_key: bool) -> int:
        self._place, self._quote, self._is_key = "string", quote, is_key
        self.json.append('"')
        return at + 1

    def _item(self, text: str, at: int) -> int:
        """In a bracket, where an item or its end may stand: a comma before the end says nothing."""
        at = self._after_space(text, at)
        if at == len(text):
            return at
        if text[at] == self._closers[-1]:
            return self._close(at)
        if self._place in ("item", "key"):
            self.json.append(", ")
        if self._closers[-1] != "}":
            self._place = "value"
            return at
        return self._begin_string(text[at], at, is_key=True) if text[at] in "'\"" else self._break(at)

    def _opens(self, closer: str) -> None:
        self.json.append("{" if closer == "}" else "[")

    def _closes(self, closer: str) -> None:
        self.json.append("}" if closer == "}" else "]")

    def _colons(self) -> None:
        self.json.append(": ")

    def _string(self, text: str, at: int) -> int:
        end = end_of(_STRING_RUNS[self._quote], text, at)
        if end > at:
            self.json.append(inside_string(text[at:end]))
        at = end
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

    def _spell(self, word: str) -> bool:
        spelled = _WORDS.get(word) or _number(word)
        if spelled is not None:
            self.json.append(spelled)
        return spelled is not None


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
