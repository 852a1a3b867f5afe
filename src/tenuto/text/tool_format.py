"""How a model writes a tool call: the grammar that makes it, and the parser that reads it back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tenuto.errors import GrammarError, InvalidRequest
from tenuto.protocol.chat import NamedTool, ToolChoice
from tenuto.protocol.grammar import GrammarSpec
from tenuto.protocol.messages import ToolSpec
from tenuto.text.hermes_parser import (
    CLOSE,
    OPEN,
    CallArguments,
    CallFinished,
    CallStarted,
    HermesParser,
    ParsedPiece,
    Text,
)
from tenuto.text.lark_text import literal
from tenuto.text.rule_body import rule_body
from tenuto.text.tool_grammar import ToolGrammar, key_text

__all__ = [
    "CallArguments",
    "CallFinished",
    "CallStarted",
    "HermesFormat",
    "ParsedPiece",
    "Text",
    "ToolCallFormat",
    "ToolCallParser",
]


class ToolCallParser(Protocol):
    """Reads one turn's text as it streams."""

    def push(self, text: str) -> list[ParsedPiece]: ...

    def finish(self) -> list[ParsedPiece]: ...


class ToolCallFormat(Protocol):
    """One way to write tool calls."""

    def grammar(
        self,
        tools: Sequence[ToolSpec],
        choice: ToolChoice,
        parallel: bool,
        copied_from: Sequence[str],
        reply: GrammarSpec | None = None,
    ) -> GrammarSpec:
        """What a turn with these tools may be.

        Args:
            choice: `auto`: prose, then calls of any of the tools, which are held to their schemas. `required`: calls
                and nothing else. A named tool: the same, of this tool only. Not `none`.
            parallel: more than one call may follow one another.
            copied_from: the texts that `Copied` strings may come from.
            reply: what a turn without calls must be; then none has prose. Only with `auto`.

        Returns:
            The grammar; its `relaxed` says what of the tools' schemas it does not hold.

        Raises:
            InvalidRequest: the named tool is not among the tools.
            GrammarError: a strict tool's schema, or the reply's, says something that no grammar can hold.
        """
        ...

    def parser(self) -> ToolCallParser:
        """A fresh parser, for one turn."""
        ...


MAX_CALLS = 16


class HermesFormat:
    """`<tool_call>{"name": "...", "arguments": {...}}</tool_call>`, calls on lines of their own.

    Args:
        max_calls: of one turn. A small model that may call in parallel repeats itself until its context is full.
    """

    def __init__(self, max_calls: int = MAX_CALLS) -> None:
        assert max_calls >= 1
        self._max_calls = max_calls

    def grammar(
        self,
        tools: Sequence[ToolSpec],
        choice: ToolChoice,
        parallel: bool,
        copied_from: Sequence[str],
        reply: GrammarSpec | None = None,
    ) -> GrammarSpec:
        assert choice != "none", "without tools there is nothing to constrain"
        if isinstance(choice, NamedTool):
            tools = [tool for tool in tools if tool.name == choice.name]
            if not tools:
                raise InvalidRequest(f"tool_choice names {choice.name!r}, which is not among the tools", "tool_choice")
        rules = ToolGrammar(copied_from)
        calls: list[str] = []
        for index, tool in enumerate(tools):
            arguments = rules.add_tool(index, tool)
            if arguments is not None:
                head = "{" + key_text("name") + key_name(tool.name) + ", " + key_text("arguments")
                calls.append(rules.rule(f"call_{index}", f"{literal(head)} {arguments} {literal('}' + CLOSE)}"))
        if not calls and choice != "auto":
            raise GrammarError("no tool can be called: their arguments must be copied, but there is no text to copy")
        others = self._max_calls - 1 if parallel else 0
        more = f" ({literal(chr(10) + OPEN)} call){{0,{others}}}" if others else ""
        start = _start(calls, choice, more) if reply is None else _reply_or_calls(calls, more, rule_body(reply))
        return GrammarSpec(kind="lark", source=f"{start}\n{rules.text()}", relaxed=tuple(rules.relaxed))

    def parser(self) -> HermesParser:
        return HermesParser()


def key_name(name: str) -> str:
    """The name as a JSON string."""
    return key_text(name).removesuffix(": ")


def _reply_or_calls(calls: list[str], more: str, reply: str) -> str:
    """The rules above the calls where the reply has a grammar of its own. `more`: what may follow the first call."""
    if not calls:
        return f"start: reply\nreply: {reply}"
    return f"start: reply | {literal(OPEN)} call{more}\nreply: {reply}\ncall: {' | '.join(calls)}"


def _start(calls: list[str], choice: ToolChoice, more: str) -> str:
    """The rules above the calls. Prose is free and lazy: as soon as the opening tag is complete, a call it is.

    Prose does not begin with another tag of that family, such as a made-up tool's answer, which small models write.
    """
    prose = r"PROSE: /(?s:.*)/ & ~/\s*<tool_(?s:.*)/"
    if not calls:  # nothing can be called, so no call may begin
        return f"start: TALK\nTALK: /(?s:.*)/ & ~/(?s:.*){OPEN}(?s:.*)/"
    call = f"call: {' | '.join(calls)}"
    if choice == "auto":
        return f"start: PROSE | opening call{more}\n{prose}\nopening[lazy]: PROSE {literal(OPEN)}\n{call}"
    return f"start: {literal(OPEN)} call{more}\n{call}"
