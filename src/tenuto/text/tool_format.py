"""How a model writes a tool call: the grammar that makes it, and the parser that reads it back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tenuto.errors import GrammarError, InvalidRequest
from tenuto.protocol.chat import NamedTool, ToolChoice
from tenuto.protocol.grammar import GrammarSpec
from tenuto.protocol.messages import ToolSpec
from tenuto.text.formats.known import HERMES, CallFormat
from tenuto.text.formats.pieces import CallArguments, CallFinished, CallStarted, ParsedPiece, Text
from tenuto.text.formats.stream import CallParser
from tenuto.text.formats.wording import CallRule
from tenuto.text.lark_text import literal, regex_literal
from tenuto.text.rule_body import rule_body
from tenuto.text.tool_grammar import ToolGrammar

__all__ = [
    "CallArguments",
    "CallFinished",
    "CallStarted",
    "HermesFormat",
    "ParsedPiece",
    "Text",
    "TextFormat",
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
            GrammarError: a strict tool's schema, or the reply's, says something that no grammar can hold; or the
                format cannot write a tool's name.
        """
        ...

    def parser(self, tools: Sequence[ToolSpec] | None = None) -> ToolCallParser:
        """A fresh parser, for one turn.

        Args:
            tools: those declared: some formats need them to tell a call from prose, and a number from its digits as
                text. None: not known; then any name may be called.
        """
        ...


MAX_CALLS = 16


class TextFormat:
    """Calls as one of the described formats writes them.

    Args:
        description: the format.
        max_calls: of one turn. A small model that may call in parallel repeats itself until its context is full.
        hidden: strings that are control tokens of the model, which no user should see.
    """

    def __init__(
        self, description: CallFormat, max_calls: int = MAX_CALLS, hidden: frozenset[str] = frozenset()
    ) -> None:
        assert max_calls >= 1
        self.description = description
        self._max_calls = max_calls
        self._hidden = hidden

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
        wording = self.description.wording
        calls = [call for index, tool in enumerate(tools) if (call := wording.call(rules, index, tool)) is not None]
        if not calls and choice != "auto":
            raise GrammarError("no tool can be called: their arguments must be copied, but there is no text to copy")
        start = _Start(self.description, calls, self._max_calls - 1 if parallel else 0)
        if reply is not None:
            text = start.reply_or_calls(rule_body(reply))
        else:
            text = start.prose_or_calls() if choice == "auto" else start.calls_only()
        return GrammarSpec(kind="lark", source=f"{text}\n{rules.text()}", relaxed=tuple(rules.relaxed))

    def parser(self, tools: Sequence[ToolSpec] | None = None) -> CallParser:
        declared = None if tools is None else {tool.name: tool for tool in tools}
        return CallParser(self.description.syntax, declared, self._hidden)

    @property
    def usage(self) -> str:
        """What a call looks like, with dots for its parts."""
        wording = self.description.wording
        return f"{wording.first}{wording.usage}{wording.last}"

    def write(self, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
        """Calls as text, the way the grammar would have them."""
        wording = self.description.wording
        written = [wording.write(name, arguments) for name, arguments in calls]
        return wording.first + wording.between.join(written) + wording.last if written else ""


class HermesFormat(TextFormat):
    """`<tool_call>{"name": "...", "arguments": {...}}</tool_call>`, calls on lines of their own: our own way."""

    def __init__(self, max_calls: int = MAX_CALLS, hidden: frozenset[str] = frozenset()) -> None:
        super().__init__(HERMES, max_calls, hidden)


class _Start:
    """The rules above the calls.

    Args:
        num_more: calls that may follow the first.
    """

    def __init__(self, description: CallFormat, calls: Sequence[CallRule], num_more: int) -> None:
        self._format = description
        self._wording = description.wording
        self._calls = calls
        between = f"({literal(self._wording.between)} call){{0,{num_more}}}"
        last = literal(self._wording.last) if self._wording.last else ""
        self._rest = " ".join(filter(None, (between if num_more else "", last)))

    def _call_rule(self) -> str:
        return "call: " + " | ".join(f"{literal(call.head)} {call.body}" for call in self._calls)

    def calls_only(self) -> str:
        return f"start: {literal(self._wording.first)} call {self._rest}\n{self._call_rule()}"

    def reply_or_calls(self, reply: str) -> str:
        """A turn that is either a reply with a grammar of its own, or calls."""
        if not self._calls:
            return f"start: reply\nreply: {reply}"
        opened = f"{literal(self._wording.first)} call {self._rest}"
        return f"start: reply | {opened}\nreply: {reply}\n{self._call_rule()}"

    def prose_or_calls(self) -> str:
        """Prose is free and lazy: as soon as what opens a call is complete, a call it is.

        What opens it holds the tool's name where nothing else tells it from prose.
        """
        bar = f" & ~/{self._format.no_prose}/" if self._format.no_prose else ""
        prose = f"PROSE: /(?s:.*)/{bar}"
        before = f"BEFORE: /{self._format.prose}/{bar}"
        first = self._wording.first
        if not self._calls:  # nothing can be called, so no call may begin
            return f"start: TALK\nTALK: /(?s:.*)/ & ~/{self._format.prose}{regex_literal(first)}(?s:.*)/"
        if len(first) > 1:
            opened = f"opening[lazy]: BEFORE {literal(first)}"
            return f"start: PROSE | opening call {self._rest}\n{prose}\n{before}\n{opened}\n{self._call_rule()}"
        names = range(len(self._calls))
        opened = "\n".join(
            f"opening_{i}[lazy]: BEFORE {literal(first + call.head)}" for i, call in enumerate(self._calls)
        )
        either = "opened: " + " | ".join(f"opening_{i} {self._calls[i].body}" for i in names)
        return "\n".join(
            [
                f"start: PROSE | opened {self._rest}",
                prose,
                before,
                opened,
                either,
                *([self._call_rule()] if self._rest else []),
            ]
        )
