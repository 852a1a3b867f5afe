"""The request of POST /v1/chat/completions, field by field, as clients send it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from tenuto.protocol.chat import MAX_CHOICES
from tenuto.protocol.engine import MAX_TOP_LOGPROBS
from tenuto.protocol.grammar import GrammarSpec
from tenuto.server.hints.wire import HintFields
from tenuto.server.reasoning_fields import ReasoningFields
from tenuto.server.sampling_fields import SamplingFields, StopField
from tenuto.server.tool_fields import FunctionSpec, answer_grammar
from tenuto.server.wire_shape import Wire, either


class ContentPart(Wire):
    """A piece of a message's content. Only text is served; images, audio and files are refused by name."""

    type: str = Field(description='`"text"`')
    text: str | None = Field(None, description="the text")


class FunctionCall(Wire):
    name: str = Field(min_length=1, description="the tool's name")
    arguments: str | None = Field(
        None, description="the arguments, a JSON object as text; blank or null means `{}`, anything else is refused"
    )


class CallInHistory(Wire):
    """A call the assistant made earlier."""

    id: str = Field(min_length=1, description="the id under which the tool's result comes")
    type: Literal["function"] = "function"
    function: FunctionCall


class WireMessage(Wire):
    """One message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"] = Field(
        description="who speaks; `developer` is the same as `system`"
    )
    content: (
        Annotated[
            Annotated[str, Tag("text")] | Annotated[list[ContentPart], Tag("list")],
            either("Input should be a string or a list of text parts"),
        ]
        | None
    ) = Field(
        None,
        description="a string, or a list of text parts, which are joined without anything between them; may be null or "
        "missing for an assistant, which is the same as empty, and for a tool",
    )
    reasoning_content: str | None = Field(
        None, description="assistant only: what it thought, as it was sent; the template decides whether it is kept"
    )
    reasoning: str | None = Field(None, description="assistant only: another name for reasoning_content, which wins")
    tool_calls: list[CallInHistory] | None = Field(None, description="assistant only: the calls it made")
    tool_call_id: str | None = Field(None, description="tool only, required: the call it answers")
    name: str | None = Field(None, description="tool only: the tool's name; found through the call if missing")
    audio: dict[str, Any] | None = Field(None, description="not served")
    function_call: dict[str, Any] | None = Field(None, description="not served: send tool_calls")


class WireTool(Wire):
    type: Literal["function"] = Field(description='`"function"`')
    function: FunctionSpec


class FunctionName(Wire):
    name: str


class NamedToolChoice(Wire):
    type: Literal["function"] = "function"
    function: FunctionName


class AllowedToolsSpec(Wire):
    mode: Literal["auto", "required"] | None = Field(None, description="Default `auto`")
    tools: list[NamedToolChoice] = Field(min_length=1, description="the tools that may be called")


class AllowedToolsChoice(Wire):
    """The model is told of all tools, and may call these."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedToolsSpec


def _choice_kind(value: Any) -> str | None:
    if isinstance(value, dict):
        return "allowed" if value.get("type") == "allowed_tools" else "object"
    return "text" if isinstance(value, str) else None


class JsonSchemaSpec(Wire):
    name: str | None = Field(None, description="for people")
    description: str | None = Field(None, description="for people")
    schema_: dict[str, Any] = Field(alias="schema", description="JSON Schema of the answer; see the table in grammars")
    strict: bool | None = Field(None, description="without effect: the schema is always held, or refused")


class ResponseFormat(Wire):
    """What the answer's text is: anything, a JSON object, or JSON under a schema."""

    type: Literal["text", "json_object", "json_schema"] = Field(description="`text`, `json_object` or `json_schema`")
    json_schema: JsonSchemaSpec | None = Field(None, description="with `json_schema`, required: the schema")

    def grammar(self) -> GrammarSpec | None:
        """Raises InvalidRequest."""
        schema = None if self.json_schema is None else self.json_schema.schema_
        return answer_grammar(self.type, schema, "response_format.json_schema")


class StreamOptions(Wire):
    include_usage: bool | None = Field(
        None, description="send one more chunk before the end, with empty `choices` and the usage"
    )


class ChatCompletionBody(SamplingFields, StopField, ReasoningFields, HintFields):
    """One turn of a conversation. Fields that are not listed are ignored."""

    model: str = Field(description="a name from GET /v1/models; `default` is always accepted")
    messages: list[WireMessage] = Field(fail_fast=True, min_length=1, description="the whole conversation so far")
    tools: list[WireTool] | None = Field(None, fail_fast=True, description="tools the model may call")
    tool_choice: (
        Annotated[
            Annotated[Literal["none", "auto", "required"], Tag("text")]
            | Annotated[NamedToolChoice, Tag("object")]
            | Annotated[AllowedToolsChoice, Tag("allowed")],
            Discriminator(
                _choice_kind,
                custom_error_type="either",
                custom_error_message='Input should be "none", "auto", "required" or an object that names tools',
            ),
        ]
        | None
    ) = Field(
        None,
        description="`auto` (the default): the model decides; `none`: no calls; `required`: at least one call; the one "
        "of `tools` that must be called; or those of them that may be",
    )
    parallel_tool_calls: bool | None = Field(None, description="false: at most one call a turn. Default true")
    max_completion_tokens: int | None = Field(
        None, ge=1, le=2**31 - 1, description="most tokens to generate. Default: as many as the context has room for"
    )
    max_tokens: int | None = Field(
        None, ge=1, le=2**31 - 1, description="older name of max_completion_tokens, which wins if both are given"
    )
    n: int | None = Field(
        None,
        ge=1,
        le=MAX_CHOICES,
        description="how many answers; the prompt is computed once, and each has a seed of its own. Default 1",
    )
    logprobs: bool | None = Field(
        None, description="send the log-probability of each token of the answer, of the model's own logits"
    )
    top_logprobs: int | None = Field(
        None, ge=0, le=MAX_TOP_LOGPROBS, description="only with logprobs: so many of the likeliest tokens at each place"
    )
    response_format: ResponseFormat | None = Field(
        None,
        description="what the answer's text must be; with tools, unless it calls one. No effect on a turn that must "
        "call a tool",
    )
    stream: bool | None = Field(None, description="send the answer as server-sent events while it is generated")
    stream_options: StreamOptions | None = Field(None, description="only with stream")
    session_id: str | None = Field(
        None,
        description="extension: the session that holds this conversation, see /v1/sessions; it is opened if it is new. "
        "Only with n = 1",
    )
    ignore_eos: bool | None = Field(
        None, description="extension for benchmarks: generate up to the token limit, past the model's end of turn"
    )
    user: str | None = Field(None, description="ignored")


class EditsOnlyBody(ChatCompletionBody):
    """A conversation that is named, not continued; it may be empty."""

    messages: list[WireMessage] = Field(fail_fast=True, description="the conversation that is meant")
