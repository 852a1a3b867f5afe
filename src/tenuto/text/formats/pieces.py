"""What a parser makes of a turn's text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Text:
    """Prose, or a call that turned out to be none."""

    text: str
    is_cut_call: bool = field(default=False, compare=False)  # the beginning of a call that the end of the text cut off


@dataclass(frozen=True)
class CallStarted:
    """A call whose name is known. If what follows is broken, no CallFinished comes, but a Text with the whole call."""

    name: str


@dataclass(frozen=True)
class CallArguments:
    """The next piece of the arguments' JSON text."""

    text: str


@dataclass(frozen=True)
class CallFinished:
    name: str
    arguments: dict[str, Any]


ParsedPiece: TypeAlias = Text | CallStarted | CallArguments | CallFinished
