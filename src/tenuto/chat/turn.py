"""A request, checked: what goes to the template and what goes to the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from tenuto.chat.conversation import Conversation
from tenuto.chat.history import arrange
from tenuto.errors import ContextLengthError, InvalidRequest
from tenuto.ids import TokenId
from tenuto.protocol.chat import MAX_CHOICES, AllowedTools, ChatRequest, NamedTool, ToolChoice
from tenuto.protocol.engine import GenerateParams
from tenuto.protocol.grammar import GrammarSpec, ReasoningFrame, Relaxation
from tenuto.protocol.messages import ToolSpec
from tenuto.text.template import RESERVED_OPTIONS, TemplateSettings
from tenuto.text.tool_format import ToolCallFormat

MAX_TEMPLATE_OPTIONS = 32


@dataclass(frozen=True)
class Turn:
    """What one request asks for."""

    conversation: Conversation
    params: GenerateParams
    stop: tuple[str, ...]
    parallel_tool_calls: bool

    @property
    def may_call(self) -> bool:
        return bool(self.conversation.tools)

    @property
    def relaxed(self) -> tuple[Relaxation, ...]:
        """What of the tools' schemas the grammar does not hold."""
        return () if self.params.grammar is None else self.params.grammar.relaxed

    def after_reasoning(self, frame: ReasoningFrame | None) -> Turn:
        """The turn with its grammar, if it has one, held to what follows the reasoning. None: there is none."""
        if frame is None or self.params.grammar is None:
            return self
        grammar = msgspec.structs.replace(self.params.grammar, reasoning=frame)
        return replace(self, params=msgspec.structs.replace(self.params, grammar=grammar))

    def check_room(self, num_prompt: int, max_tokens: int) -> None:
        """Raises ContextLengthError unless prompt and reply fit."""
        num_tokens = num_prompt + (self.params.max_tokens or 1)
        if num_tokens > max_tokens:
            raise ContextLengthError(num_tokens, max_tokens, "the conversation with its reply")


def check_size(request: ChatRequest, max_tokens: int, max_token_bytes: int) -> None:
    """Refuse at once what cannot fit, however it is encoded: rendering and encoding megabytes takes seconds.

    Every message, call and tool takes at least one token, and a token stands for `max_token_bytes` at most.

    Raises:
        ContextLengthError: with the least number of tokens it needs.
    """
    calls = [call for message in request.messages for call in message.tool_calls]
    parts = len(request.messages) + len(request.examples) + len(calls) + len(request.tools)
    num_chars = sum(len(message.content) for message in request.messages)
    num_chars += sum(len(msgspec.json.encode(call.arguments)) for call in calls) // 2  # half may be its spelling
    num_chars += sum(len(tool.description) + len(tool.name) for tool in request.tools)
    num_chars += sum(len(msgspec.json.encode(tool.parameters)) for tool in request.tools) // 2
    num_tokens = max(parts, -(-num_chars // max_token_bytes)) + (request.max_tokens or 1)
    if num_tokens > max_tokens:
        raise ContextLengthError(num_tokens, max_tokens, "the conversation with its reply, at the very least,")


def read_turn(request: ChatRequest, tool_format: ToolCallFormat, eos_ids: frozenset[TokenId]) -> Turn:
    """
    Args:
        eos_ids: ids that end a turn.

    Raises:
        InvalidRequest: names the field or the message.
        GrammarError: the response's or a strict tool's schema cannot be made a grammar.
    """
    if not request.messages:
        raise InvalidRequest("messages is empty; give at least one", param="messages")
    if request.max_tokens is not None and request.max_tokens < 1:
        raise InvalidRequest(f"max_tokens is {request.max_tokens}; it must be at least 1", param="max_tokens")
    if not 1 <= request.n <= MAX_CHOICES:
        raise InvalidRequest(f"n is {request.n}; it must be between 1 and {MAX_CHOICES}", param="n")
    if request.n > 1 and request.session is not None:
        raise InvalidRequest(f"n is {request.n}; a held session goes on in one way: n must be 1", param="n")
    if not all(request.stop):
        raise InvalidRequest("stop holds an empty string, which would end every reply", param="stop")
    tools = _tools(request)
    params = GenerateParams(
        max_tokens=request.max_tokens,
        sampling=request.sampling,
        stop_ids=frozenset() if request.ignore_eos else eos_ids,
        grammar=_grammar(request, tools, tool_format),
        logprobs=request.logprobs,
        hints=request.hints,
    )
    return Turn(_conversation(request, tools), params, request.stop, request.parallel_tool_calls)


def _tools(request: ChatRequest) -> tuple[ToolSpec, ...]:
    """The tools the model is told of: none at all if it may not call any."""
    names: dict[str, None] = {}
    for tool in request.tools:
        if tool.name in names:
            raise InvalidRequest(f"tools declares {tool.name!r} twice; names must differ", param="tools")
        names[tool.name] = None
    choice = request.tool_choice
    named = (
        (choice.name,) if isinstance(choice, NamedTool) else choice.names if isinstance(choice, AllowedTools) else ()
    )
    for name in named:
        if name not in names:
            declared = ", ".join(names) or "none"
            raise InvalidRequest(f"tool_choice names {name!r}, which is not in tools ({declared})", "tool_choice")
    if isinstance(choice, AllowedTools) and not choice.names:
        raise InvalidRequest("tool_choice allows no tool at all; use none", param="tool_choice")
    if choice == "required" and not names:
        raise InvalidRequest("tool_choice is required, but tools is empty", param="tool_choice")
    return () if choice == "none" else request.tools


def _named(choice: ToolChoice | AllowedTools) -> tuple[str, ...]:
    match choice:
        case NamedTool(name=name):
            return (name,)
        case AllowedTools(names=names):
            return names
        case _:
            return ()


def _grammar(request: ChatRequest, tools: Sequence[ToolSpec], tool_format: ToolCallFormat) -> GrammarSpec | None:
    """Arguments declared as copied may hold only what the user or a tool said: not the system, no worked example.

    A turn that must call a tool has no text that the response could be about; clients send it with every turn of a run.
    """
    response, choice = request.response, request.tool_choice
    if isinstance(choice, AllowedTools):
        tools, choice = [tool for tool in tools if tool.name in choice.names], choice.mode
    if choice == "required" or isinstance(choice, NamedTool):
        response = None
    if not tools:
        return response
    said = [message.content for message in request.messages if message.role in ("user", "tool") and message.content]
    assert choice != "none", "then there are no tools"
    return tool_format.grammar(tools, choice, request.parallel_tool_calls, said, response)


def _conversation(request: ChatRequest, tools: tuple[ToolSpec, ...]) -> Conversation:
    """Worked examples come after the system messages that open the conversation, as turns like any other."""
    arranged, examples = arrange(request.messages), arrange(request.examples, "examples")
    num_system = next((i for i, m in enumerate(arranged.messages) if m.role != "system"), len(arranged.messages))
    return Conversation(
        messages=(*arranged.messages[:num_system], *examples.messages, *arranged.messages[num_system:]),
        sources=(*arranged.sources[:num_system], *(None for _ in examples.messages), *arranged.sources[num_system:]),
        tools=tools,
        settings=_settings(request),
        tenant=request.hints.tenant,
    )


def _settings(request: ChatRequest) -> TemplateSettings:
    names = [name for name, _ in request.template_options]
    if len(names) > MAX_TEMPLATE_OPTIONS:
        param = "template_options"
        raise InvalidRequest(f"template_options holds {len(names)} variables, {MAX_TEMPLATE_OPTIONS} at most", param)
    for place, name in enumerate(names):
        if name in RESERVED_OPTIONS or name in names[:place] or not name.isidentifier():
            why = "says what is rendered" if name in RESERVED_OPTIONS else "is given twice, or is no name"
            raise InvalidRequest(f"template_options: {name[:100]!r} {why}; leave it out", "template_options")
    return TemplateSettings(request.thinking, request.template_options)
