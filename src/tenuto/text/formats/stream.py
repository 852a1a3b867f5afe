"""Finds tool calls in text as it streams.

What comes out does not depend on how the text was cut into pieces: decisions are taken at positions of the text, never
at the end of a piece. Every character is looked at once, in runs, so the cost is linear. Text that is no call after
all comes back as text, to the last character, except for control tokens, which no user should see.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tenuto.text.formats.pieces import ParsedPiece, Text
from tenuto.text.formats.reader import MAX_SPACE, After, CallReader, DeclaredTools, after_space

_MAX_CALL_CHARS = 1_000_000
_MAX_CALLS = 1_000  # begun in one turn, also those that broke off; what follows them is text
_MAX_PIECE_CHARS = 65_536  # a longer piece is looked at in parts, since its rest is copied now and then
_MAX_MARKER_CHARS = 64
_SURROGATE = re.compile("[\ud800-\udfff]")
_BLANKS = re.compile(r"[ \t]*")


@dataclass(frozen=True)
class CallSyntax:
    """Where calls begin, and who reads them from there on."""

    openings: tuple[str, ...]  # strings that begin a call wherever they stand
    reader: Callable[[str, DeclaredTools], CallReader]  # for an opening or a separator; "": the call begins bare
    bare: str = ""  # a character that begins a call where a line begins


class CallParser:
    """One turn's text. Pieces of the same kind in a row belong together.

    Args:
        tools: those declared; None: not known.
        hidden: strings that are control tokens of the model: they are taken out of the text.
    """

    def __init__(self, syntax: CallSyntax, tools: DeclaredTools = None, hidden: frozenset[str] = frozenset()) -> None:
        self._syntax = syntax
        self._tools = tools
        self._openings = frozenset(syntax.openings)
        watched = sorted(self._openings | hidden, key=len, reverse=True)
        self._watched = tuple(watched)
        self._longest = max(map(len, watched), default=1)
        self._first = frozenset(string[0] for string in watched)
        stops = [re.escape(string) for string in watched]
        stops += [rf"\n[ \t]*(?={re.escape(syntax.bare)})"] if syntax.bare else []
        self._stop = re.compile("|".join(stops))
        self._hidden = re.compile("|".join(map(re.escape, sorted(hidden, key=len, reverse=True)))) if hidden else None
        self._state: Literal["text", "call", "after"] = "text"
        self._num_calls = 0
        self._held = ""  # not yet decided: the beginning of a marker, or white space around calls
        self._at_line_start = True
        self._opening = ""
        self._reader: CallReader | None = None
        self._raw: list[str] = []  # what the reader took
        self._num_raw = 0
        self._has_started = False  # its name is out
        self._after = After()
        self._pieces: list[ParsedPiece] = []

    def push(self, text: str) -> list[ParsedPiece]:
        """What the text adds. Holds back only what could be the beginning of a marker or of a call."""
        text = _SURROGATE.sub("\ufffd", text)
        for begin in range(0, len(text), _MAX_PIECE_CHARS):
            self._push(text[begin : begin + _MAX_PIECE_CHARS])
        return self._flush()

    def _push(self, text: str) -> None:
        text = self._held + text
        self._held = ""
        steps = {"text": self._text, "call": self._call, "after": self._follow}
        at = 0
        while at < len(text):
            state = self._state
            reached = steps[state](text, at)
            if reached == at and self._state == state:
                self._held = text[at:]
                break
            at = reached

    def finish(self) -> list[ParsedPiece]:
        """The text is over: what was held back, and a call that was not completed, come as text."""
        if self._state == "call":
            is_call = bool(self._opening) or self._has_started
            self._say(self._opening + "".join(self._raw) + self._held, is_cut_call=is_call)
        elif self._state == "text" or self._held.strip():
            self._say(self._held)
        self._state, self._held = "text", ""
        return self._flush()

    def _flush(self) -> list[ParsedPiece]:
        pieces, self._pieces = self._pieces, []
        return pieces

    def _say(self, text: str, is_cut_call: bool = False) -> None:
        if self._syntax.bare and text:
            line = text.rpartition("\n")
            self._at_line_start = (self._at_line_start or bool(line[1])) and not line[2].strip(" \t")
        shown = self._hidden.sub("", text) if self._hidden is not None else text
        if shown:
            self._pieces.append(Text(shown, is_cut_call))

    def _text(self, text: str, at: int) -> int:
        may_open = self._num_calls < _MAX_CALLS
        if self._syntax.bare and self._at_line_start and may_open:
            found = _BLANKS.match(text, at)
            begin = found.end() if found else at
            if text[begin : begin + 1] == self._syntax.bare:
                self._say(text[at:begin])
                return self._open("", begin)
        stop = self._stop.search(text, at) if may_open else None
        if stop is None:
            end = len(text) - self._num_undecided(text, at)
            self._say(text[at:end])
            return end
        if stop[0] in self._openings:
            self._say(text[at : stop.start()])
            return self._open(stop[0], stop.end())
        self._say(text[at : stop.end()])
        return stop.end()

    def _num_undecided(self, text: str, at: int) -> int:
        """Length of the longest end of the text that may be the beginning of a marker."""
        longest = min(self._longest - 1, len(text) - at)
        ends = range(longest, 0, -1)
        return next((n for n in ends if text[-n] in self._first and self._may_begin(text[-n:])), 0)

    def _may_begin(self, end: str) -> bool:
        return any(len(end) < len(marker) and marker.startswith(end) for marker in self._watched)

    def _open(self, opening: str, at: int) -> int:
        self._opening, self._reader = opening, self._syntax.reader(opening, self._tools)
        self._raw, self._num_raw, self._has_started = [], 0, False
        self._num_calls += 1
        self._state = "call"
        return at

    def _call(self, text: str, at: int) -> int:
        assert self._reader is not None
        limit = at + _MAX_CALL_CHARS - self._num_raw
        is_too_long = limit < len(text)
        num_pieces = len(self._pieces)
        end = self._reader.feed(text[:limit] if is_too_long else text, at, self._pieces)
        self._has_started = self._has_started or len(self._pieces) > num_pieces
        self._raw.append(text[at:end])
        self._num_raw += end - at
        if self._reader.state == "closed":
            self._after = self._reader.after
            self._at_line_start = False
            self._state = "after"
        elif self._reader.state == "broken" or is_too_long:
            assert self._opening or self._num_raw, "a bare call's first character is taken, so that it is not met again"
            self._say(self._opening + "".join(self._raw))
            self._state = "text"
        return end

    def _follow(self, text: str, at: int) -> int:
        """After a call: what closes it, then white space up to the next call or the end, are nobody's text."""
        begin = after_space(text, at)
        if begin - at > MAX_SPACE or self._num_calls >= _MAX_CALLS:
            self._state = "text"
            return at
        for index, closer in enumerate(self._after.closers):
            if text.startswith(closer, begin):
                self._after = After(closers=self._after.closers[index + 1 :])
                return begin + len(closer)
        for opening in (*self._syntax.openings, *self._after.separators):
            if text.startswith(opening, begin):
                return self._open(opening, begin + len(opening))
        if self._syntax.bare and text[begin : begin + 1] == self._syntax.bare:
            return self._open("", begin)
        rest = text[begin : begin + _MAX_MARKER_CHARS]
        expected = (*self._after.closers, *self._syntax.openings, *self._after.separators)
        if not rest or any(string.startswith(rest) for string in expected):
            return at
        self._state = "text"
        return at
