"""Texts with tool calls in every format, and what a parser makes of them however they are cut."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from tenuto.protocol.messages import ToolSpec
from tenuto.text.formats.known import FORMATS
from tenuto.text.tool_format import CallArguments, CallFinished, ParsedPiece, Text, TextFormat

NAMES = sorted(FORMATS)


def tool(name: str, properties: dict[str, Any], *required: str, **others: Any) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "required": list(required), **others}
    return ToolSpec(name=name, description="", parameters=schema)


TOOLS = (
    tool(
        "book_room",
        {
            "guest": {"type": "object", "properties": {"name": {"type": "string"}, "tier": {"enum": ["gold", "tin"]}}},
            "beds": {"type": "array", "items": {"type": "object", "properties": {"w": {"type": "integer"}}}},
            "night": {"type": "integer"},
        },
    ),
    tool("say", {"text": {"type": "string"}, "times": {"type": "integer"}, "loud": {"type": "boolean"}}, "text"),
    tool("add", {"x": {"type": "number"}, "y": {"type": ["integer", "null"]}}, "x"),
    tool("any", {"value": {}, "城市": {"type": "string"}}),
    tool("ping", {}),
)


def format_named(name: str, hidden: Iterable[str] = ()) -> TextFormat:
    return TextFormat(FORMATS[name], hidden=frozenset(hidden))


def joined(pieces: Iterable[ParsedPiece]) -> list[ParsedPiece]:
    """Neighbours of one kind put together: what a stream means, however it was cut."""
    out: list[ParsedPiece] = []
    for piece in pieces:
        last = out[-1] if out else None
        if isinstance(piece, Text) and isinstance(last, Text):
            out[-1] = Text(last.text + piece.text)
        elif isinstance(piece, CallArguments) and isinstance(last, CallArguments):
            out[-1] = CallArguments(last.text + piece.text)
        else:
            out.append(piece)
    return out


def parse(
    tool_format: TextFormat, chunks: Iterable[str], tools: Sequence[ToolSpec] | None = TOOLS
) -> list[ParsedPiece]:
    parser = tool_format.parser(tools)
    pieces = [piece for chunk in chunks for piece in parser.push(chunk)]
    return joined([*pieces, *parser.finish()])


def parse_everyhow(tool_format: TextFormat, text: str, tools: Sequence[ToolSpec] | None = TOOLS) -> list[ParsedPiece]:
    """The parse, which has to be the same whole, by characters, and cut in two at every place."""
    whole = parse(tool_format, [text], tools)
    assert parse(tool_format, text, tools) == whole
    for at in range(len(text)):
        assert parse(tool_format, [text[:at], text[at:]], tools) == whole, (text[:at], text[at:])
    return whole


def cut(text: str, rng: random.Random, longest: int = 7) -> list[str]:
    chunks = []
    while text:
        size = rng.randint(1, longest)
        chunks.append(text[:size])
        text = text[size:]
    return chunks


def calls_in(pieces: Iterable[ParsedPiece]) -> list[tuple[str, dict[str, Any]]]:
    return [(piece.name, piece.arguments) for piece in pieces if isinstance(piece, CallFinished)]


def text_in(pieces: Iterable[ParsedPiece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, Text))
