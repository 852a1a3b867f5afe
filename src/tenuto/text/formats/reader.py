"""What every reader of a call's text is, and the small ones that others are put together from."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from tenuto.protocol.messages import ToolSpec
from tenuto.text.formats.nested import end_of
from tenuto.text.formats.pieces import ParsedPiece

ReaderState: TypeAlias = Literal["open", "closed", "broken"]
DeclaredTools: TypeAlias = Mapping[str, ToolSpec] | None  # by name; None: not known, any name may be called

MAX_SPACE = 64  # more white space between the parts of a call is none of a call's
MAX_ARGUMENTS = 1_000  # of one call, where they are written one by one
MAX_HEAD = 300  # characters before a call's arguments
SPACE_RUN = re.compile(r"\s*")


@dataclass(frozen=True)
class After:
    """What may follow a call, white space aside."""

    closers: tuple[str, ...] = ()  # belong to the call; each at most once, in this order, some or all
    separators: tuple[str, ...] = ()  # announce another call, until a closer has come


class CallReader(Protocol):
    """Reads one call, from behind what opened it to the end of its arguments.

    Attributes:
        state: `closed` once the call was handed out whole; `broken`: it is no call.
        after: what may follow, once it is closed.
    """

    state: ReaderState
    after: After

    def feed(self, text: str, at: int, out: list[ParsedPiece]) -> int:
        """Go on at that place; returns the place after the last character taken.

        Where it cannot go on without what comes next, it takes less than all and stays open; what it left is shown
        to it again. Both are decided at places of the text, never by where a piece of it happened to end.
        """
        ...


class LeadIn:
    """White space, then a reader chosen by the first character, which that reader sees too."""

    def __init__(self, choose: Callable[[str], CallReader | None]) -> None:
        self.state: ReaderState = "open"
        self.after = After()
        self._choose = choose
        self._reader: CallReader | None = None

    def feed(self, text: str, at: int, out: list[ParsedPiece]) -> int:
        if self._reader is None:
            begin = after_space(text, at)
            if begin - at > MAX_SPACE:
                self.state = "broken"
                return at
            if begin == len(text):
                return at
            self._reader = self._choose(text[begin])
            if self._reader is None:
                self.state = "broken"
                return at
            at = begin
        at = self._reader.feed(text, at, out)
        self.state, self.after = self._reader.state, self._reader.after
        return at


class Behind:
    """A fixed text, white space before it aside, then another reader."""

    def __init__(self, fixed: str, reader: CallReader) -> None:
        self.state: ReaderState = "open"
        self.after = After()
        self._fixed = fixed
        self._reader = reader
        self._is_inside = False

    def feed(self, text: str, at: int, out: list[ParsedPiece]) -> int:
        if not self._is_inside:
            begin = after_space(text, at)
            if text.startswith(self._fixed, begin) and begin - at <= MAX_SPACE:
                self._is_inside = True
                at = begin + len(self._fixed)
            elif begin - at > MAX_SPACE or not self._fixed.startswith(text[begin : begin + len(self._fixed)]):
                self.state = "broken"
                return at
            else:
                return at
        at = self._reader.feed(text, at, out)
        self.state, self.after = self._reader.state, self._reader.after
        return at


def after_space(text: str, at: int) -> int:
    """The place of the next character that is no white space."""
    return end_of(SPACE_RUN, text, at)
