"""How a run's events look: for a person, and as JSON lines for a script."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import TypeAlias

import msgspec
from rich.console import Console
from rich.markup import escape

from tenuto.agents import AgentEvent, RunFinished, Text, ToolAnswered, ToolCalled

Show: TypeAlias = Callable[[AgentEvent], None]

_ENDINGS = {
    "max_turns": "stopped: the run reached its most turns without an answer",
    "repeated_calls": "stopped: the model kept making the same call",
}


@contextlib.contextmanager
def json_lines() -> Iterator[Show]:
    """Shows one event a line, in UTF-8 whatever the terminal's encoding.

    Nothing else may stand between the lines, so what a user's tools print goes to standard error meanwhile.
    """
    lines = sys.stdout.buffer

    def show(event: AgentEvent) -> None:
        lines.write(msgspec.json.encode(event) + b"\n")
        lines.flush()

    with contextlib.redirect_stdout(sys.stderr):
        yield show


class ShowText:
    """Prints events as they come: text as it streams, calls and results on lines of their own."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._in_text = False

    def question(self, text: str) -> None:
        self._line(f"[bold]{escape(text)}[/]")

    def __call__(self, event: AgentEvent) -> None:
        match event:
            case Text(text=text):
                self._console.print(text if self._in_text else text.lstrip(), end="", markup=False, highlight=False)
                self._in_text = True
            case ToolCalled(name=name, arguments=arguments):
                shown = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in arguments.items())
                self._line(f"[cyan]→ {escape(f'{name}({shown})')}[/]")
            case ToolAnswered(text=text, is_error=is_error, duration_s=duration_s):
                style = "red" if is_error else "dim"
                self._line(f"[{style}]← {escape(text)}[/] [dim]({duration_s:.2f} s)[/]")
            case RunFinished(reason=reason, error=error):
                self._line("")
                if reason != "answer":
                    self._line(f"[red]{escape(error or _ENDINGS.get(reason, reason))}[/]")
            case _:
                pass

    def _line(self, markup: str) -> None:
        if self._in_text:
            self._console.print()
            self._in_text = False
        if markup:
            self._console.print(markup, highlight=False, soft_wrap=True)
