"""The request of POST /v1/chat/completions, field by field, as clients send it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from tenuto.protocol.chat import MAX_CHOICES
from tenuto.protocol.engine import MAX_LOGIT_BIASES, MAX_TOP_LOGPROBS

MAX_STOPS = 4
MAX_STOP_CHARS = 1000
_UNION_TAGS = ((str, "text"), (list, "list"), (dict, "object"))


def _tag(value: Any) -> str | None:
    """Which member of a union a JSON value is meant for; None: none."""
    return next((tag for kind, tag in _UNION_TAGS if isinstance(value, kind)), None)


def _either(what: str) -> Discriminator:
    return Discriminator(_tag, custom_error_type="either", custom_error_message=what)


class _Wire(BaseModel):
    # Strict: "5" is not a number. Unknown fields are ignored, as other servers do: clients send each other's extras.
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class ContentPart(_Wire):
    """A piece of a message's content. Only text is served; images, audio and files are refused by name."""

    type: str = Field(description='`"text"`')
    text: str | None = Field(None, description="the text")


class FunctionCall(_Wire):
    name: str = Field(min_length=1, description="the tool's name")
    arguments: str | None = Field(
        None, description="the arguments, a JSON object as text; blank or null means `{}`, anything else is refused"
    )


class CallInHistory(_Wire):
    """A call the assistant made earlier."""

    id: str = Field(min_length=1, description="the id under which the tool's result comes")
    type: Literal["function"] = "function"
    function: FunctionCall


class WireMessage(_Wire):
    """One message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"] = Field(
        description="who speaks; `developer` is the same as `system`"
    )
    content: (
        Annotated[
            Annotated[str, Tag("text")] | Annotated[list[ContentPart], Tag("list")],
            _either("Input should be a string or a list of text parts"),
        ]
        | None
    ) = Field(
        None,
        description="a string, or a list of text parts, which are joined without anything between them; may be null or "
        "missing for an assistant, which is the same as empty, and for a tool",
    )
    tool_calls: list[CallInHistory] | None = Field(None, description="assistant only: the calls it made")
    tool_call_id: str | None = Field(None, description="tool only, required: the call it answers")
    name: str | None = Field(None, description="tool only: the tool's name; found through the call if missing")
    audio: dict[str, Any] | None = Field(None, description="not served")
    function_call: dict[str, Any] | None = Field(None, description="not served: send tool_calls")


class FunctionSpec(_Wire):
    name: str = Field(min_length=1, max_length=64, description="unique among the tools")
    description: str | None = Field(None, description="what it does and when to call it, for the model")
    parameters: dict[str, Any] | None = Field(
        None, description="JSON Schema of the arguments object; missing: no arguments"
    )
    strict: bool | None = Field(
        None,
        description="true: a schema that cannot be held exactly is refused. Otherwise calls are decoded under what of "
        "it can be held, and the rest is logged",
    )


class WireTool(_Wire):
    type: Literal["function"] = Field(description='`"function"`')
    function: FunctionSpec


class FunctionName(_Wire):
    name: str


class NamedToolChoice(_Wire):
    type: Literal["function"]
    function: FunctionName


class JsonSchemaSpec(_Wire):
    name: str | None = Field(None, description="for people")
    description: str | None = Field(None, description="for people")
    schema_: dict[str, Any] = Field(alias="schema", description="JSON Schema of the answer; see the table in grammars")
    strict: bool | None = Field(None, description="without effect: the schema is always held, or refused")


class ResponseFormat(_Wire):
    """What the answer's text is: anything, a JSON object, or JSON under a schema."""

    type: Literal["text", "json_object", "json_schema"] = Field(description="`text`, `json_object` or `json_schema`")
    json_schema: JsonSchemaSpec | None = Field(None, description="with `json_schema`, required: the schema")


class StreamOptions(_Wire):
    include_usage: bool | None = Field(
        None, description="send one more chunk before the end, with empty `choices` and the usage"
    )


class ChatCompletionBody(_Wire):
    """One turn of a conversation. Fields that are not listed are ignored."""

    model: str = Field(description="a name from GET /v1/models; `default` is always accepted")
    messages: list[WireMessage] = Field(fail_fast=True, min_length=1, description="the whole conversation so far")
    tools: list[WireTool] | None = Field(None, fail_fast=True, description="tools the model may call")
    tool_choice: (
        Annotated[
            Annotated[Literal["none", "auto", "required"], Tag("text")] | Annotated[NamedToolChoice, Tag("object")],
            _either('Input should be "none", "auto", "required" or {"type": "function", "function": {"name": ...}}'),
        ]
        | None
    ) = Field(
        None,
        description="`auto` (the default): the model decides; `none`: no calls; `required`: at least one call; or the "
        "one tool that must be called, which is one of `tools`",
    )
    parallel_tool_calls: bool | None = Field(None, description="false: at most one call a turn. Default true")
    max_completion_tokens: int | None = Field(
        None, ge=1, le=2**31 - 1, description="most tokens to generate. Default: as many as the context has room for"
    )
    max_tokens: int | None = Field(
        None, ge=1, le=2**31 - 1, description="older name of max_completion_tokens, which wins if both are given"
    )
    temperature: float | None = Field(
        None,
        ge=0,
        le=2,
        allow_inf_nan=False,
        description="0 always takes the likeliest token. Default 1, as in OpenAI's API: agents that want the same "
        "answer again send 0, or a seed",
    )
    top_p: float | None = Field(
        None, gt=0, le=1, allow_inf_nan=False, description="sample among the likeliest tokens of this mass. Default 1"
    )
    top_k: int | None = Field(
        None, ge=-1, le=2**31 - 1, description="extension: sample among so many of the likeliest tokens. Default 0: all"
    )
    min_p: float | None = Field(
        None,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="extension: sample among tokens at least so many times as likely as the likeliest. Default 0: all",
    )
    presence_penalty: float | None = Field(
        None, ge=-2, le=2, allow_inf_nan=False, description="taken off the logit of a token the answer holds. Default 0"
    )
    frequency_penalty: float | None = Field(
        None, ge=-2, le=2, allow_inf_nan=False, description="the same, once for each time it holds it. Default 0"
    )
    repetition_penalty: float | None = Field(
        None,
        ge=0.01,
        le=100,
        allow_inf_nan=False,
        description="extension: divides the positive logits of tokens that prompt or answer hold, multiplies the "
        "negative ones. Default 1",
    )
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100, allow_inf_nan=False)]] | None = Field(
        None,
        description="token id, as text → what is added to its logit, -100 to 100; "
        f"{MAX_LOGIT_BIASES} at most. Default: none",
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
    seed: int | None = Field(
        None, ge=-(2**63), le=2**63 - 1, description="same seed, same request, same answer. Default: a fresh one"
    )
    stop: (
        Annotated[
            Annotated[str, Tag("text")] | Annotated[list[str], Tag("list")],
            _either("Input should be a string or a list of strings"),
        ]
        | None
    ) = Field(
        None, description=f"the text ends before the first of these: a string, or a list of up to {MAX_STOPS} strings"
    )
    response_format: ResponseFormat | None = Field(
        None, description="what the answer's text must be; with tools, unless it calls one. Not with a required call"
    )
    stream: bool | None = Field(None, description="send the answer as server-sent events while it is generated")
    stream_options: StreamOptions | None = Field(None, description="only with stream")
    ignore_eos: bool | None = Field(
        None, description="extension for benchmarks: generate up to the token limit, past the model's end of turn"
    )
    user: str | None = Field(None, description="ignored")
