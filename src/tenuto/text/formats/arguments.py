"""The arguments of one call on their way out."""

from __future__ import annotations

from typing import Any

from tenuto.text.formats.json_text import SurrogateMender, dumps, loads
from tenuto.text.formats.pieces import CallArguments, CallFinished, CallStarted, ParsedPiece


class ArgumentStream:
    """Hands out a call: its start, pieces of its arguments' JSON text, and the whole once it is there."""

    def __init__(self, name: str, out: list[ParsedPiece]) -> None:
        self.name = name
        self._mender = SurrogateMender()
        self._text: list[str] = []
        out.append(CallStarted(name))

    def push(self, text: str, out: list[ParsedPiece]) -> None:
        """The next JSON text."""
        mended = self._mender.push(text)
        if mended:
            self._text.append(mended)
            out.append(CallArguments(mended))

    def finish(self, out: list[ParsedPiece]) -> None:
        """The text is complete, a JSON object."""
        out.append(CallFinished(self.name, loads("".join(self._text))))


def hand_out(name: str, arguments: dict[str, Any], out: list[ParsedPiece]) -> None:
    """A call whose arguments are known at once."""
    stream = ArgumentStream(name, out)
    stream.push(dumps(arguments), out)
    stream.finish(out)
