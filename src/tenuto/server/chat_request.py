"""A request's body → `ChatRequest`: what the shape alone cannot say is checked here, and named where it is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenuto.errors import InvalidRequest
from tenuto.ids import CallId, RequestId
from tenuto.protocol.chat import AllowedTools, ChatRequest, NamedTool, ToolChoice
from tenuto.protocol.hints import RunHints
from tenuto.protocol.messages import Message, ToolCall, ToolSpec
from tenuto.server.limits import ServerLimits
from tenuto.server.reasoning_fields import reasoning_of
from tenuto.server.sampling_fields import sampling_of, stops_of
from tenuto.server.tool_fields import (
    allowed_tools,
    check_declared,
    read_arguments,
    tool_specs,
)
from tenuto.server.wire import AllowedToolsChoice, CallInHistory, ChatCompletionBody, ContentPart, WireMessage

# Fields of OpenAI's API that are not served, and the values that ask for nothing.
NOT_SERVED: dict[str, tuple[Any, ...]] = {
    "modalities": (None, ["text"]),
    "audio": (None,),
    "functions": (None, []),
    "function_call": (None, "none", "auto"),
    "prediction": (None,),
    "web_search_options": (None,),
}


def to_chat_request(
    body: ChatCompletionBody, request_id: RequestId, limits: ServerLimits, hints: RunHints = RunHints()
) -> ChatRequest:
    """Raises InvalidRequest."""
    tools = tool_specs((f"tools[{i}].function.name", tool.function.spec()) for i, tool in enumerate(body.tools or ()))
    if body.stream_options is not None and not body.stream:
        raise InvalidRequest("stream_options: only with stream", "stream_options")
    reasoning = reasoning_of(body)
    choice = _tool_choice(body, tools)
    return ChatRequest(
        messages=_messages(body.messages, limits),
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=body.parallel_tool_calls is not False,
        response=None if body.response_format is None else body.response_format.grammar(),
        max_tokens=body.max_completion_tokens or body.max_tokens,
        sampling=sampling_of(body, request_id),
        n=body.n or 1,
        logprobs=_logprobs(body),
        stop=stops_of(body),
        ignore_eos=bool(body.ignore_eos),
        thinking=reasoning.thinking,
        template_options=reasoning.options,
        hints=hints,
    )


def _logprobs(body: ChatCompletionBody) -> int | None:
    if body.logprobs:
        return body.top_logprobs or 0
    if body.top_logprobs:
        raise InvalidRequest("top_logprobs: only with logprobs", "top_logprobs")
    return None


def _tool_choice(body: ChatCompletionBody, tools: tuple[ToolSpec, ...]) -> ToolChoice | AllowedTools:
    choice = body.tool_choice
    if choice is None:
        return "auto"
    if isinstance(choice, str):
        if choice == "required" and not tools:
            raise InvalidRequest("tool_choice: required, but no tools are given", "tool_choice")
        return choice
    if isinstance(choice, AllowedToolsChoice):
        asked = choice.allowed_tools
        return allowed_tools([tool.function.name for tool in asked.tools], asked.mode, tools)
    name = choice.function.name
    check_declared(name, tools, "tool_choice")
    return NamedTool(name)


def _messages(messages: Sequence[WireMessage], limits: ServerLimits) -> tuple[Message, ...]:
    called: dict[str, str] = {}  # call id → tool name, of the calls so far
    made = []
    for index, message in enumerate(messages):
        path = f"messages[{index}]"
        one = _message(message, path, limits)
        called.update({call.id: call.name for call in one.tool_calls})
        if one.role == "tool" and one.name is None and one.tool_call_id in called:
            one = Message(
                role="tool", content=one.content, tool_call_id=one.tool_call_id, name=called[one.tool_call_id]
            )
        made.append(one)
    return tuple(made)


def _message(message: WireMessage, path: str, limits: ServerLimits) -> Message:
    for field in ("audio", "function_call"):
        if getattr(message, field) is not None:
            raise InvalidRequest(f"{path}.{field} is not served", f"{path}.{field}")
    if message.tool_calls and message.role != "assistant":
        raise InvalidRequest(f"{path}.tool_calls: only an assistant makes calls", f"{path}.tool_calls")
    if message.content is None and message.role not in ("assistant", "tool"):
        raise InvalidRequest(f"{path}.content is required of {message.role}", f"{path}.content")
    content = _text(message.content, f"{path}.content")
    match message.role:
        case "assistant":
            calls = tuple(
                _call(call, f"{path}.tool_calls[{number}]", limits)
                for number, call in enumerate(message.tool_calls or ())
            )
            reasoning = message.reasoning_content or message.reasoning or ""
            return Message(role="assistant", content=content, reasoning=reasoning, tool_calls=calls)
        case "tool":
            if not message.tool_call_id:
                raise InvalidRequest(f"{path}.tool_call_id is required of a tool's result", f"{path}.tool_call_id")
            return Message(
                role="tool", content=content, tool_call_id=CallId(message.tool_call_id), name=message.name or None
            )
        case "system" | "developer":
            return Message(role="system", content=content)
        case "user":
            return Message(role="user", content=content)


def _text(content: str | list[ContentPart] | None, path: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    for index, part in enumerate(content):
        if part.type != "text":
            where = f"{path}[{index}].type"
            raise InvalidRequest(f"{where}: {part.type[:50]!r} is not served, only text", where)
        if part.text is None:
            raise InvalidRequest(f"{path}[{index}].text is required", f"{path}[{index}].text")
    return "".join(part.text or "" for part in content)


def _call(call: CallInHistory, path: str, limits: ServerLimits) -> ToolCall:
    arguments = read_arguments(call.function.arguments, f"{path}.function.arguments", limits)
    return ToolCall(id=CallId(call.id), name=call.function.name, arguments=arguments)
