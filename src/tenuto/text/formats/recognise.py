"""Which tool-call format a model speaks, from its chat template and vocabulary."""

from __future__ import annotations

import re
from collections.abc import Container

from tenuto.text.formats.known import (
    DEEPSEEK,
    DEEPSEEK_V31,
    HERMES,
    LLAMA,
    MISTRAL,
    MISTRAL_ARGS,
    PYTHONIC,
    XML,
    CallFormat,
)

_PYTHON_CALLS = re.compile(r"\[\s*func\w*\(")  # how templates describe it: [func_name1(params_name1=...
_LLAMA_KEYS = re.compile(r"\\?[\"']parameters\\?[\"']\s*:")


def knows_tools(template: str) -> bool:
    """Whether the template tells the model of tools."""
    return "tools" in template


def recognise(template: str | None, control: Container[str]) -> CallFormat:
    """
    Args:
        template: the model's own; None if it has none.
        control: strings of the vocabulary's control tokens. They decide where the template does not say.

    Returns:
        The format; our own, Hermes, where none is recognised, and where the template knows nothing of tools: then it
        is us who tell the model of them, and how to call them.
    """
    if template is None or not knows_tools(template):
        return HERMES
    if "<function=" in template and "<parameter=" in template:
        return XML
    if "<tool_call>" in template:
        return HERMES
    if "<｜tool▁calls▁begin｜>" in template or "<｜tool▁call▁begin｜>" in template:
        return DEEPSEEK if "```json" in template else DEEPSEEK_V31
    if "[TOOL_CALLS]" in template:
        return MISTRAL_ARGS if "[ARGS]" in template else MISTRAL
    if "<|python_start|>" in template or _PYTHON_CALLS.search(template):
        return PYTHONIC
    if "<|python_tag|>" in template or ("<|python_tag|>" in control and _LLAMA_KEYS.search(template)):
        return LLAMA
    if "[TOOL_CALLS]" in control:
        return MISTRAL_ARGS if "[ARGS]" in control else MISTRAL
    if "<｜tool▁calls▁begin｜>" in control:
        return DEEPSEEK_V31
    return HERMES
