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


def recognise(template: str | None, knows_tools: bool, control: Container[str]) -> CallFormat:
    """
    Args:
        template: the model's own; None if it has none.
        knows_tools: whether it is the template that tells the model of tools. Where we do so, in words of our own,
            we ask for calls in our own form.
        control: strings of the vocabulary's control tokens. They decide where the template does not say.

    Returns:
        The format; our own, Hermes, where none is recognised.
    """
    if template is None or not knows_tools:
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
