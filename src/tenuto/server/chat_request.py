"""A request's body → `ChatRequest`: what the shape alone cannot say is checked here, and named where it is wrong."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tenuto.errors import InvalidRequest
from tenuto.ids import CallId, RequestId, TokenId
from tenuto.protocol.chat import ChatRequest, NamedTool, ToolChoice
from tenuto.protocol.engine import SamplingParams
from tenuto.protocol.grammar import GrammarSpec
from tenuto.protocol.messages import Message, ToolCall, ToolSpec
from tenuto.server.body import decode_json
from tenuto.server.limits import ServerLimits
from tenuto.server.wire import (
    MAX_STOP_CHARS,
    MAX_STOPS,
    CallInHistory,
    ChatCompletionBody,
    ContentPart,
    WireMessage,
    WireTool,
)

DEFAULT_TEMPERATURE = 1.0

# Fields of OpenAI's API that are not served, and the values that ask for nothing.
NOT_SERVED: dict[str, tuple[Any, ...]] = {
    "modalities": (None, ["text"]),
    "audio": (None,),
    "functions": (None, []),
    "function_call": (None, "none", "auto"),
    "prediction": (None,),
    "web_search_options": (None,),
}


def parse_body(body: dict[str, Any]) -> ChatCompletionBody:
    """Checks the shape. Raises InvalidRequest naming the field by its path, e.g. `messages[2].content`."""
    for name, neutral in NOT_SERVED.items():
        if not _is_one_of(body.get(name), neutral):
            served = "".join(f" other than {json.dumps(value)}" for value in neutral[1:2])
            raise InvalidRequest(f"{name} is not served{served}; leave it out", name)
    try:
        return ChatCompletionBody.model_validate(body)
    except ValidationError as error:
        path, message = min(((_path(one, body), one["msg"]) for one in error.errors()), key=lambda e: -len(e[0]))
        raise InvalidRequest(f"{path}: {message}", path) from error


def _is_one_of(value: Any, neutral: tuple[Any, ...]) -> bool:
    """Equal as JSON, where true is not 1."""
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in neutral)


def _path(error: ErrorDetails, body: dict[str, Any]) -> str:
    """The error's place in the body. The validator's own names for members of a union are not part of it."""
    path = ""
    value: Any = body
    for part in error["loc"]:
        if isinstance(part, int) and isinstance(value, list):
            path, value = f"{path}[{part}]", value[part]
        elif isinstance(value, dict) and part in value:
            path, value = f"{path}.{part}", value[part]
        elif isinstance(value, dict) and error["type"] == "missing" and part == error["loc"][-1]:
            path = f"{path}.{part}"
    return path.lstrip(".")


def to_chat_request(body: ChatCompletionBody, request_id: RequestId, limits: ServerLimits) -> ChatRequest:
    """Raises InvalidRequest."""
    tools = _tools(body.tools or [])
    if body.stream_options is not None and not body.stream:
        raise InvalidRequest("stream_options: only with stream", "stream_options")
    return ChatRequest(
        messages=_messages(body.messages, limits),
        tools=tools,
        tool_choice=_tool_choice(body, tools),
        parallel_tool_calls=body.parallel_tool_calls is not False,
        response=_response(body),
        max_tokens=body.max_completion_tokens or body.max_tokens,
        sampling=_sampling(body, request_id),
        n=body.n or 1,
        logprobs=_logprobs(body),
        stop=_stop(body.stop),
        ignore_eos=bool(body.ignore_eos),
    )


def _sampling(body: ChatCompletionBody, request_id: RequestId) -> SamplingParams:
    return SamplingParams(
        logit_bias=_logit_bias(body.logit_bias or {}),
        repetition_penalty=1.0 if body.repetition_penalty is None else body.repetition_penalty,
        frequency_penalty=body.frequency_penalty or 0.0,
        presence_penalty=body.presence_penalty or 0.0,
        temperature=DEFAULT_TEMPERATURE if body.temperature is None else body.temperature,
        top_k=max(body.top_k or 0, 0),
        top_p=1.0 if body.top_p is None else body.top_p,
        min_p=body.min_p or 0.0,
        seed=_fresh_seed(request_id) if body.seed is None else body.seed % 2**63,
    )


def _logit_bias(biases: dict[str, float]) -> tuple[tuple[TokenId, float], ...]:
    for text in biases:
        if not (text.isascii() and text.isdecimal() and len(text) <= 10):
            raise InvalidRequest(f"logit_bias: {text[:20]!r} is no token id", "logit_bias")
    return tuple((TokenId(int(text)), bias) for text, bias in biases.items())


def _logprobs(body: ChatCompletionBody) -> int | None:
    if body.logprobs:
        return body.top_logprobs or 0
    if body.top_logprobs:
        raise InvalidRequest("top_logprobs: only with logprobs", "top_logprobs")
    return None


def _fresh_seed(request_id: RequestId) -> int:
    """As random as the id, from the same source; so the id, which is logged, is enough to replay a request."""
    return int.from_bytes(hashlib.blake2b(request_id.encode(), digest_size=8).digest(), "big") % 2**63


def _stop(stop: str | list[str] | None) -> tuple[str, ...]:
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(stops) > MAX_STOPS:
        raise InvalidRequest(f"stop: {len(stops)} strings, {MAX_STOPS} at most", "stop")
    if any(len(stop) > MAX_STOP_CHARS for stop in stops):
        raise InvalidRequest(f"stop: a string is longer than {MAX_STOP_CHARS} characters", "stop")
    if "" in stops:
        raise InvalidRequest("stop: a stop string must not be empty", "stop")
    return stops


def _tools(tools: Sequence[WireTool]) -> tuple[ToolSpec, ...]:
    specs: dict[str, ToolSpec] = {}
    for index, tool in enumerate(tools):
        function = tool.function
        if function.name in specs:
            path = f"tools[{index}].function.name"
            raise InvalidRequest(f"{path}: {function.name!r} is declared twice", path)
        parameters = function.parameters or {"type": "object", "properties": {}}
        specs[function.name] = ToolSpec(
            name=function.name,
            description=function.description or "",
            parameters=parameters,
            strict=bool(function.strict),
        )
    return tuple(specs.values())


def _response(body: ChatCompletionBody) -> GrammarSpec | None:
    asked = body.response_format
    if asked is None or asked.type == "text":
        return None
    if body.tool_choice not in (None, "auto", "none"):
        raise InvalidRequest("response_format: not with a tool_choice that asks for a call", "response_format")
    if asked.type == "json_object":
        return GrammarSpec(kind="json_schema", source='{"type": "object"}')
    if asked.json_schema is None:
        path = "response_format.json_schema"
        raise InvalidRequest(f"{path} is required of the type json_schema", path)
    return GrammarSpec(kind="json_schema", source=json.dumps(asked.json_schema.schema_, ensure_ascii=False))


def _tool_choice(body: ChatCompletionBody, tools: tuple[ToolSpec, ...]) -> ToolChoice:
    choice = body.tool_choice
    if choice is None:
        return "auto"
    if isinstance(choice, str):
        if choice == "required" and not tools:
            raise InvalidRequest("tool_choice: required, but no tools are given", "tool_choice")
        return choice
    name = choice.function.name
    if name not in (tool.name for tool in tools):
        known = ", ".join(tool.name for tool in tools) or "none"
        raise InvalidRequest(f"tool_choice: {name[:100]!r} is not among tools ({known})", "tool_choice")
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
            return Message(role="assistant", content=content, tool_calls=calls)
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
    where = f"{path}.function.arguments"
    text = (call.function.arguments or "").strip()
    try:
        arguments = decode_json(text, limits.max_json_depth, limits.max_json_values) if text else {}
    except InvalidRequest as error:
        raise InvalidRequest(f"{where}: {error}", where) from error
    if arguments is None:  # "null": what a client writes that has no arguments to write
        arguments = {}
    if not isinstance(arguments, dict):
        raise InvalidRequest(f"{where}: must be a JSON object", where)
    return ToolCall(id=CallId(call.id), name=call.function.name, arguments=arguments)
