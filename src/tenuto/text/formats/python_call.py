"""Reads a call written in Python: `name(key="value", other=3)`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, TypeAlias

from tenuto.text.formats.arguments import ArgumentStream
from tenuto.text.formats.json_text import dumps
from tenuto.text.formats.pieces import ParsedPiece
from tenuto.text.formats.python_literal import PythonLiteral
from tenuto.text.formats.reader import MAX_ARGUMENTS, MAX_HEAD, After, ReaderState, after_space

NAME = re.compile(r"[^\s()\[\]{}'\",;:=<>\\]+")

_Place: TypeAlias = Literal["list", "name", "first", "key", "equals", "value", "next"]


class PythonCall:
    """One call of a list of calls. Only arguments with names are read: nothing else says what they are for.

    Args:
        in_list: the bracket of the list was seen.
        accepts: whether a tool has this name; None: any may be called.
    """

    def __init__(self, after: After, in_list: bool, accepts: Callable[[str], bool] | None) -> None:
        self.state: ReaderState = "open"
        self.after = after
        self._accepts = accepts
        self._place: _Place = "name" if in_list else "list"
        self._name = self._key = ""
        self._keys: set[str] = set()
        self._literal = PythonLiteral()
        self._stream: ArgumentStream | None = None

    def feed(self, text: str, at: int, out: list[ParsedPiece]) -> int:
        while at < len(text) and self.state == "open":
            if self._place == "value":
                at = self._value(text, at, out)
                continue
            begin = after_space(text, at)
            if begin == len(text):
                return begin
            end = self._word(text, begin) if self._place in ("name", "first", "key") else None
            if end == -1:
                return begin  # the word may go on
            at = self._sign(text, begin, out) if end is None else end
        return at

    def _word(self, text: str, at: int) -> int | None:
        """Take a name; None if none stands there, -1 if it is not certain where it ends."""
        found = NAME.match(text, at)
        if found is None:
            return None
        if len(found[0]) > MAX_HEAD:
            self.state = "broken"
            return at
        if found.end() == len(text):
            return -1
        if self._place == "name":
            self._name = found[0]
            self._place = "first"
            if text[found.end()] != "(" or (self._accepts is not None and not self._accepts(self._name)):
                self.state = "broken"
            return found.end() + (self.state == "open")
        self._key, self._place = found[0], "equals"
        if self._key in self._keys or len(self._keys) == MAX_ARGUMENTS:
            self.state = "broken"
        return found.end()

    def _sign(self, text: str, at: int, out: list[ParsedPiece]) -> int:
        match self._place, text[at]:
            case "list", "[":
                self._place = "name"
            case (("first" | "key" | "next"), ")"):
                self._end(out)
            case "next", ",":
                self._place = "key"
            case "equals", "=":
                self._begin_value(out)
            case _:
                self.state = "broken"
                return at
        return at + 1

    def _begin_value(self, out: list[ParsedPiece]) -> None:
        before = ", " if self._keys else "{"
        self._keys.add(self._key)
        self._running(out).push(f"{before}{dumps(self._key)}: ", out)
        self._literal = PythonLiteral()
        self._place = "value"

    def _running(self, out: list[ParsedPiece]) -> ArgumentStream:
        if self._stream is None:
            self._stream = ArgumentStream(self._name, out)
        return self._stream

    def _value(self, text: str, at: int, out: list[ParsedPiece]) -> int:
        end = self._literal.feed(text, at)
        self._running(out).push("".join(self._literal.json), out)
        self._literal.json.clear()
        if self._literal.state == "broken":
            self.state = "broken"
        elif self._literal.state == "closed":
            self._place = "next"
        return end

    def _end(self, out: list[ParsedPiece]) -> None:
        stream = self._running(out)
        stream.push("}" if self._keys else "{}", out)
        stream.finish(out)
        self.state = "closed"
