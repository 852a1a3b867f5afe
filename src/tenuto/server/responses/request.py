"""A request's body → `ChatRequest`, and what of the response is known before it is generated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tenuto.errors import InvalidRequest
from tenuto.ids import RequestId
from tenuto.protocol.chat import AllowedTools, ChatRequest, NamedTool, ToolChoice
from tenuto.protocol.grammar import GrammarSpec
from tenuto.protocol.hints import RunHints
from tenuto.protocol.messages import Message, ToolSpec
from tenuto.server.limits import ServerLimits
from tenuto.server.responses.items import ReadItems
from tenuto.server.responses.wire import (
    ITEM_TYPES,
    LOGPROBS,
    MAX_METADATA,
    FunctionTool,
    ResponseCreateBody,
    item_type,
)
from tenuto.server.sampling_fields import DEFAULT_TEMPERATURE, sampling_of, stops_of
from tenuto.server.tool_fields import (
    allowed_tools,
    answer_grammar,
    check_declared,
    tool_specs,
)
from tenuto.server.wire_shape import parse_body

# Fields of OpenAI's API that are not served, and the values that ask for nothing.
NOT_SERVED: dict[str, tuple[Any, ...]] = {
    "background": (None, False),
    "conversation": (None,),
    "context_management": (None, []),
    "moderation": (None,),
    "prompt": (None,),
    "truncation": (None, "disabled"),
}

_MESSAGE = re.compile(r"messages\[(\d+)\]")
_FIELDS = {"messages": "input", "max_tokens": "max_output_tokens", "response": "text.format"}
_KNOWN_INCLUDES = (
    LOGPROBS,
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
)
_MAX_METADATA_KEY, _MAX_METADATA_VALUE = 64, 512


def parse_response_body(body: dict[str, Any], limits: ServerLimits) -> ResponseCreateBody:
    """Checks the shape, and refuses by name what is not served. Raises InvalidRequest."""
    for field, most in (("input", limits.max_messages), ("tools", limits.max_tools)):
        if isinstance(body.get(field), list) and len(body[field]) > most:
            raise InvalidRequest(f"{field}: this server takes {most} at most", field)
    _refuse(body.get("input"), "input", ITEM_TYPES, item_type)
    _refuse(body.get("tools"), "tools", ("function",), _type)
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and (kind := _type(choice)) not in (None, "function", "allowed_tools"):
        raise InvalidRequest(f"tool_choice.type: {kind[:50]!r} is not served", "tool_choice.type")
    parsed = parse_body(body, ResponseCreateBody, NOT_SERVED)
    if parsed.input is None and parsed.previous_response_id is None:
        raise InvalidRequest("input: give what to answer, or a previous_response_id to go on from", "input")
    if parsed.stream_options is not None and not parsed.stream:
        raise InvalidRequest("stream_options: only with stream", "stream_options")
    for include in parsed.include or ():
        if include not in _KNOWN_INCLUDES:
            raise InvalidRequest(f"include: {include[:100]!r} is not known", "include")
    _check_metadata(parsed.metadata or {})
    return parsed


def _type(value: Any) -> str | None:
    kind = value.get("type") if isinstance(value, dict) else None
    return kind if isinstance(kind, str) else None


def _refuse(values: Any, field: str, served: tuple[str, ...], type_of: Any) -> None:
    """Raises InvalidRequest for the first of a list whose type has a name that is not served."""
    for index, value in enumerate(values if isinstance(values, list) else ()):
        kind = type_of(value)
        if kind is not None and kind not in served:
            path = f"{field}[{index}].type"
            raise InvalidRequest(f"{path}: {kind[:50]!r} is not served, only {', '.join(served)}", path)


def _check_metadata(metadata: Mapping[str, str]) -> None:
    if len(metadata) > MAX_METADATA:
        raise InvalidRequest(f"metadata: {len(metadata)} pairs, {MAX_METADATA} at most", "metadata")
    for key, value in metadata.items():
        if len(key) > _MAX_METADATA_KEY or len(value) > _MAX_METADATA_VALUE:
            raise InvalidRequest(
                f"metadata: a key may have {_MAX_METADATA_KEY} characters, a value {_MAX_METADATA_VALUE}", "metadata"
            )


@dataclass(frozen=True)
class Asked:
    """A request, read."""

    body: ResponseCreateBody
    history: tuple[Message, ...]  # of the responses it goes on from, without their instructions
    read: ReadItems

    def in_our_words(self, error: InvalidRequest) -> InvalidRequest:
        """What is wrong with a message of the `ChatRequest`, said of the item that it was made of."""

        def place(found: re.Match[str]) -> str:
            index = int(found[1]) - bool(self.body.instructions)
            if index < 0:
                return "instructions"
            index -= len(self.history)
            return "previous_response_id" if index < 0 else f"input[{self.read.sources[index]}]"

        param = None if error.param is None else _FIELDS.get(error.param) or _MESSAGE.sub(place, error.param)
        told = _MESSAGE.sub(place, str(error)).replace("a tool message", "a function_call_output")
        return InvalidRequest(told, param)

    def chat_request(self, request_id: RequestId, hints: RunHints) -> ChatRequest:
        """Raises InvalidRequest."""
        body = self.body
        tools = tool_specs((f"tools[{i}].name", tool.spec()) for i, tool in enumerate(body.tools or ()))
        system = (Message(role="system", content=body.instructions),) if body.instructions else ()
        choice = _tool_choice(body, tools)
        effort = body.reasoning.effort if body.reasoning is not None else None
        return ChatRequest(
            messages=(*system, *self.history, *self.read.messages),
            tools=tools,
            tool_choice=choice,
            parallel_tool_calls=body.parallel_tool_calls is not False,
            response=_response(body),
            max_tokens=body.max_output_tokens,
            sampling=sampling_of(body, request_id),
            logprobs=_logprobs(body),
            stop=stops_of(body),
            thinking=None if effort is None else effort != "none",
            template_options=() if effort is None else (("reasoning_effort", effort),),
            hints=hints,
        )


def _tool_choice(body: ResponseCreateBody, tools: tuple[ToolSpec, ...]) -> ToolChoice | AllowedTools:
    choice = body.tool_choice
    if choice is None:
        return "auto"
    if isinstance(choice, str):
        if choice == "required" and not tools:
            raise InvalidRequest("tool_choice: required, but no tools are given", "tool_choice")
        return choice
    if choice.type == "function":
        if choice.name is None:
            raise InvalidRequest("tool_choice.name is required of the type function", "tool_choice.name")
        check_declared(choice.name, tools, "tool_choice")
        return NamedTool(choice.name)
    if not choice.tools:
        raise InvalidRequest("tool_choice.tools: name at least one tool, or choose none", "tool_choice.tools")
    return allowed_tools([tool.name for tool in choice.tools], choice.mode, tools)


def _response(body: ResponseCreateBody) -> GrammarSpec | None:
    asked = body.text.format if body.text is not None else None
    return None if asked is None else answer_grammar(asked.type, asked.schema_, "text.format.schema")


def _logprobs(body: ResponseCreateBody) -> int | None:
    if LOGPROBS in (body.include or ()):
        return body.top_logprobs or 0
    if body.top_logprobs:
        raise InvalidRequest(f"top_logprobs: only with {LOGPROBS!r} in include", "top_logprobs")
    return None


def echoed(body: ResponseCreateBody) -> dict[str, Any]:
    """The fields of a response that repeat what was asked, defaults filled in."""
    text = body.text.model_dump(by_alias=True, exclude_none=True) if body.text is not None else {}
    reasoning = body.reasoning
    choice = body.tool_choice or "auto"
    return {
        "background": False,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": body.max_tool_calls,
        "metadata": body.metadata or {},
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "prompt_cache_key": body.prompt_cache_key,
        "reasoning": {"effort": reasoning.effort if reasoning is not None else None, "summary": None},
        "safety_identifier": body.safety_identifier,
        "service_tier": "default",
        "store": body.store is not False,
        "temperature": DEFAULT_TEMPERATURE if body.temperature is None else body.temperature,
        "text": {"format": {"type": "text"}} | text,
        "tool_choice": choice if isinstance(choice, str) else choice.model_dump(exclude_none=True),
        "tools": [_echoed_tool(tool) for tool in body.tools or ()],
        "top_logprobs": body.top_logprobs or 0,
        "top_p": 1.0 if body.top_p is None else body.top_p,
        "truncation": "disabled",
        "user": body.user,
    }


def _echoed_tool(tool: FunctionTool) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": bool(tool.strict),
    }
