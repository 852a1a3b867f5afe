"""JSON text read once and strictly, with what no UTF-8 can hold mended."""

from __future__ import annotations

import json
import math
import sys
from typing import Any


class SurrogateMender:
    """Passes JSON text through and turns escapes of lone surrogates, which no UTF-8 can hold, into `\\ufffd`.

    Holds back at most one escape and the beginning of the next.
    """

    def __init__(self) -> None:
        self._held = ""

    def push(self, text: str) -> str:
        text = self._held + text
        if "\\u" not in text and not text.endswith("\\"):
            self._held = ""
            return text
        out: list[str] = []
        at = 0
        while True:
            escape = text.find("\\", at)
            if escape < 0:
                self._held = ""
                return "".join([*out, text[at:]])
            out.append(text[at:escape])
            piece, length = self._escape(text, escape)
            if piece is None:
                self._held = text[escape:]
                return "".join(out)
            out.append(piece)
            at = escape + length

    @staticmethod
    def _escape(text: str, at: int) -> tuple[str | None, int]:
        """What the escape at that place becomes, and its length; None if that cannot be told yet."""
        if text[at + 1 : at + 2] != "u":
            return (text[at : at + 2] if len(text) > at + 1 else None), 2
        if len(text) < at + 6:
            return None, 0
        unit = text[at + 2 : at + 6].lower()
        if unit[0] != "d" or unit[1] not in "89abcdef":
            return text[at : at + 6], 6
        following = text[at + 6 : at + 12]
        if unit[1] in "cdef" or not "\\u".startswith(following[:2]):
            return "\\ufffd", 6
        if len(following) < 6:
            return None, 0
        is_pair = following[2] in "dD" and following[3] in "cdefCDEF"
        return (text[at : at + 12], 12) if is_pair else ("\\ufffd", 6)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(number: str) -> float:
    """A number beyond all doubles, which a grammar may well make, is the largest of them: infinity is not JSON."""
    value = float(number)
    return value if math.isfinite(value) else math.copysign(sys.float_info.max, value)


def loads(text: str) -> Any:
    """The value; None if the text is not JSON. Lone surrogates become U+FFFD, numbers are finite."""
    mender = SurrogateMender()
    try:
        return json.loads(mender.push(text), parse_constant=_refuse_constant, parse_float=_finite)
    except (ValueError, RecursionError):
        return None


def dumps(value: Any) -> str:
    """JSON text with every character as itself."""
    return json.dumps(value, ensure_ascii=False)


def inside_string(text: str) -> str:
    """The text as it stands between the quotes of a JSON string."""
    return dumps(text)[1:-1]
