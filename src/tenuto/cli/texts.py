"""Texts given as arguments or on standard input, and how they are shown."""

from __future__ import annotations

import json
import sys

import typer

_SHOWN_CHARS = 40


def read_texts(given: list[str] | None, what: str = "TEXTS") -> list[str]:
    """The arguments; without any, the lines of standard input that are not empty."""
    texts = given or [line for line in _standard_input().splitlines() if line.strip()]
    if not texts:
        raise typer.BadParameter("there is no text", param_hint=what)
    return texts


def _standard_input() -> str:
    return sys.stdin.buffer.read().decode("utf-8", errors="replace")


def json_line(**values: object) -> None:
    """One object a line, in UTF-8 whatever the terminal's encoding; half a surrogate pair has none."""
    line = json.dumps(values, ensure_ascii=False) + "\n"
    sys.stdout.buffer.write(line.encode("utf-8", errors="replace"))
    sys.stdout.buffer.flush()


def cut(text: str) -> str:
    """One short line of a text."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARS else line[: _SHOWN_CHARS - 1] + "…"
