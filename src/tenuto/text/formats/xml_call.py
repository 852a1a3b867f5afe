"""Reads a call written as elements: `<function=name><parameter=key>value</parameter></function>`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, TypeAlias

from tenuto.protocol.messages import ToolSpec
from tenuto.text.formats.arguments import ArgumentStream
from tenuto.text.formats.json_text import dumps, inside_string
from tenuto.text.formats.parameters import ALL_TYPES, properties_of, read_value, types_of
from tenuto.text.formats.pieces import ParsedPiece
from tenuto.text.formats.reader import (
    MAX_ARGUMENTS,
    MAX_HEAD,
    MAX_SPACE,
    After,
    DeclaredTools,
    ReaderState,
    after_space,
)

FUNCTION, PARAMETER = "<function=", "<parameter="
END_FUNCTION, END_PARAMETER = "</function>", "</parameter>"

_NAME = re.compile(r"[^<>\s]+")
_Place: TypeAlias = Literal["name", "between", "key", "value"]


class XmlCall:
    """From behind `<function=`. A value stands between line breaks, which are not part of it.

    Strings are handed out as they come. Other values are, once they are whole: only then is it known whether they are
    what the schema says, JSON, or a string after all.
    """

    def __init__(self, after: After, tools: DeclaredTools) -> None:
        self.state: ReaderState = "open"
        self.after = after
        self._tools = tools
        self._tool: ToolSpec | None = None
        self._place: _Place = "name"
        self._stream: ArgumentStream | None = None
        self._keys: set[str] = set()
        self._types = ALL_TYPES
        self._value: list[str] = []  # of a value that is not handed out as it comes
        self._is_first = True  # nothing of the value was seen yet
        self._steps: dict[_Place, Callable[[str, int, list[ParsedPiece]], int]] = {
            "name": self._in_name,
            "between": self._between,
            "key": self._in_key,
            "value": self._in_value,
        }

    def feed(self, text: str, at: int, out: list[ParsedPiece]) -> int:
        while at < len(text) and self.state == "open":
            place = self._place
            end = self._steps[place](text, at, out)
            if end == at and place == self._place:
                break
            at = end
        return at

    def _head(self, text: str, at: int) -> tuple[str | None, int]:
        """What stands before the next `>`, and the place behind; None if that is no name, or not there yet."""
        end = text.find(">", at, at + MAX_HEAD)
        found = _NAME.fullmatch(text, at, end) if end >= 0 else None
        if found is None:
            if end >= 0 or len(text) - at >= MAX_HEAD:
                self.state = "broken"
            return None, at
        return found[0], end + 1

    def _in_name(self, text: str, at: int, out: list[ParsedPiece]) -> int:
        name, end = self._head(text, at)
        if name is not None:
            self._tool = (self._tools or {}).get(name)
            self._stream = ArgumentStream(name, out)
            self._stream.push("{", out)
            self._place = "between"
        return end

    def _between(self, text: str, at: int, out: list[ParsedPiece]) -> int:
        assert self._stream is not None
        begin = after_space(text, at)
        if text.startswith(PARAMETER, begin):
            self._place = "key"
            return begin + len(PARAMETER)
        if text.startswith(END_FUNCTION, begin):
            self._stream.push("}", out)
            self._stream.finish(out)
            self.state = "closed"
            return begin + len(END_FUNCTION)
        rest = text[begin : begin + len(PARAMETER) + len(END_FUNCTION)]
        if begin - at > MAX_SPACE or not (PARAMETER.startswith(rest) or END_FUNCTION.startswith(rest)):
            self.state = "broken"
        return at

    def _in_key(self, text: str, at: int, out: list[ParsedPiece]) -> int:
        assert self._stream is not None
        key, end = self._head(text, at)
        if key is None:
            return at
        if key in self._keys or len(self._keys) == MAX_ARGUMENTS:  # said twice: which one counts?
            self.state = "broken"
            return at
        schema = properties_of(self._tool).get(key) if self._tool is not None else None
        self._types = types_of(schema, self._tool.parameters if self._tool is not None else None)
        quote = '"' if self._types == {"string"} else ""
        self._stream.push(f"{', ' if self._keys else ''}{dumps(key)}: {quote}", out)
        self._keys.add(key)
        self._value, self._is_first = [], True
        self._place = "value"
        return end

    def _in_value(self, text: str, at: int, out: list[ParsedPiece]) -> int:
        """Up to the closing tag. Held back: a line break before it, and what may be its beginning."""
        if self._is_first:
            self._is_first = False
            if text[at] == "\n":
                return at + 1
        end = text.find(END_PARAMETER, at)
        if end < 0:
            end = len(text) - _num_undecided(text, at)
            self._take(text[at:end], out)
            return end
        self._take(text[at:end].removesuffix("\n"), out)
        self._end_value(out)
        self._place = "between"
        return end + len(END_PARAMETER)

    def _take(self, piece: str, out: list[ParsedPiece]) -> None:
        assert self._stream is not None
        if self._types == {"string"}:
            self._stream.push(inside_string(piece), out)
        else:
            self._value.append(piece)

    def _end_value(self, out: list[ParsedPiece]) -> None:
        assert self._stream is not None
        if self._types == {"string"}:
            self._stream.push('"', out)
        else:
            self._stream.push(dumps(read_value("".join(self._value), self._types)), out)


def _num_undecided(text: str, at: int) -> int:
    """Length of the longest end of the text that may begin what ends a value."""
    ending = "\n" + END_PARAMETER
    longest = min(len(ending) - 1, len(text) - at)
    ends = (text[-n:] for n in range(longest, 0, -1))
    return next((len(end) for end in ends if ending.startswith(end) or END_PARAMETER.startswith(end)), 0)
