"""Reads a call whose name stands before a JSON object of arguments: `name[ARGS]{...}` and its like."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tenuto.text.formats.arguments import ArgumentStream
from tenuto.text.formats.json_scanner import JsonScanner
from tenuto.text.formats.pieces import ParsedPiece
from tenuto.text.formats.reader import MAX_HEAD, After, ReaderState


class NamedCall:
    """
    Args:
        heads: what may stand before the opening brace, whole, with a group `name`; the first that matches counts.
        after: what may follow.
    """

    def __init__(self, heads: Sequence[re.Pattern[str]], after: After) -> None:
        self.state: ReaderState = "open"
        self.after = after
        self._heads = heads
        self._scanner = JsonScanner()
        self._stream: ArgumentStream | None = None

    def feed(self, text: str, at: int, out: list[ParsedPiece]) -> int:
        if self._stream is None:
            brace = text.find("{", at, at + MAX_HEAD)
            if brace < 0:
                self.state = "broken" if len(text) - at >= MAX_HEAD else "open"
                return at
            name = self._name(text[at:brace])
            if name is None:
                self.state = "broken"
                return at
            self._stream = ArgumentStream(name, out)
            at = brace
        end = self._scanner.feed(text, at)
        if end > at:
            self._stream.push(text[at:end], out)
        self.state = self._scanner.state
        if self.state == "closed":
            self._stream.finish(out)
        return end

    def _name(self, head: str) -> str | None:
        found = (pattern.fullmatch(head) for pattern in self._heads)
        return next((match["name"] for match in found if match is not None), None)
