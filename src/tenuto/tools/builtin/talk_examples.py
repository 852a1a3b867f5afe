"""Worked examples of talk that needs no tool, without which a small model calls one for every greeting."""

from __future__ import annotations

from tenuto.tools.schema import Example

TALK_EXAMPLES = (
    Example("Hello", answer="Hello! How can I help you?"),
    Example("您好", answer="您好！有什么可以帮您？"),
    Example("Who are you?", answer="I am an assistant for weather, time, arithmetic and search."),
    Example("谢谢", answer="不客气！"),
)
