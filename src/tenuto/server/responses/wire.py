"""The request of POST /v1/responses, field by field, as clients send it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from tenuto.protocol.engine import MAX_TOP_LOGPROBS
from tenuto.server.sampling_fields import SamplingFields, StopField
from tenuto.server.tool_fields import FunctionSpec
from tenuto.server.wire_shape import FirstErrorOnly, Wire, either

MAX_METADATA = 16
LOGPROBS = "message.output_text.logprobs"
ItemStatus = Literal["in_progress", "completed", "incomplete"]


class ItemPart(Wire):
    """A piece of a message's content, or of a call's output. Images, audio and files are refused by name."""

    type: str = Field(description="`input_text`, `output_text` or `refusal`")
    text: str | None = Field(None, description="the text")
    refusal: str | None = Field(None, description="of a refusal: its text, which is the assistant's like any other")


Content = Annotated[
    Annotated[str, Tag("text")] | Annotated[list[ItemPart], FirstErrorOnly(), Tag("list")],
    either("Input should be a string or a list of parts"),
]


class MessageItem(Wire):
    """What somebody said. Of an assistant: a message of an earlier response, or one made up."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Content = Field(description="a string, or a list of parts, which are joined without anything between them")
    id: str | None = Field(None, max_length=200)
    status: ItemStatus | None = None


class CallItem(Wire):
    """A call that the assistant made earlier. One that is `incomplete` was never made, and is left out."""

    type: Literal["function_call"]
    call_id: str = Field(min_length=1, description="the id under which its output comes")
    name: str = Field(min_length=1, description="the tool's name")
    arguments: str | None = Field(
        None, description="a JSON object as text; blank or null means `{}`, anything else is refused"
    )
    id: str | None = Field(None, max_length=200)
    status: ItemStatus | None = None


class CallOutputItem(Wire):
    """What a call gave."""

    type: Literal["function_call_output"]
    call_id: str = Field(min_length=1, description="the call it answers")
    output: Content = Field(description="a string, or a list of text parts")
    id: str | None = Field(None, max_length=200)
    status: ItemStatus | None = None


class ReasoningText(Wire):
    type: Literal["reasoning_text"]
    text: str


class ReasoningItem(Wire):
    """What the assistant thought before it answered, as an earlier response gave it."""

    type: Literal["reasoning"]
    content: list[ReasoningText] | None = Field(None, description="its text; an item without any is left out")
    summary: list[Any] | None = Field(None, description="ignored: not what the model wrote")
    encrypted_content: str | None = Field(None, description="ignored: nothing is encrypted here")
    id: str | None = Field(None, max_length=200)
    status: ItemStatus | None = None


class ItemReference(Wire):
    """An item of a stored response, of its input or of its output, by its id."""

    type: Literal["item_reference"] | None = None
    id: str = Field(min_length=1, max_length=200)


ITEM_TYPES = ("message", "function_call", "function_call_output", "reasoning", "item_reference")


def item_type(item: Any) -> str | None:
    """A message may leave its type out, and so may a reference; None: no item at all."""
    if not isinstance(item, dict):
        return None
    named = item.get("type")
    if named is None:
        return "message" if "role" in item else "item_reference"
    return named if isinstance(named, str) else None


Item = Annotated[
    Annotated[MessageItem, Tag("message")]
    | Annotated[CallItem, Tag("function_call")]
    | Annotated[CallOutputItem, Tag("function_call_output")]
    | Annotated[ReasoningItem, Tag("reasoning")]
    | Annotated[ItemReference, Tag("item_reference")],
    Discriminator(
        item_type, custom_error_type="item", custom_error_message=f"Input should be an item: {', '.join(ITEM_TYPES)}"
    ),
]


class FunctionTool(FunctionSpec):
    """A tool the model may call. Hosted tools are refused by name."""

    type: Literal["function"]


class ToolName(Wire):
    type: Literal["function"] = "function"
    name: str


class ToolChoiceObject(Wire):
    type: Literal["function", "allowed_tools"]
    name: str | None = Field(None, description="of `function`, required: the one tool that must be called")
    mode: Literal["auto", "required"] | None = Field(None, description="of `allowed_tools`. Default `auto`")
    tools: list[ToolName] | None = Field(
        None, description="of `allowed_tools`, required: the tools that may be called; the model is told of all"
    )


class TextFormat(Wire):
    type: Literal["text", "json_object", "json_schema"]
    name: str | None = Field(None, description="for people")
    description: str | None = Field(None, description="for people")
    schema_: dict[str, Any] | None = Field(None, alias="schema", description="of `json_schema`, required")
    strict: bool | None = Field(None, description="without effect: the schema is always held, or refused")


class TextOptions(Wire):
    format: TextFormat | None = Field(
        None,
        description="what the answer's text must be; with tools, unless it calls one. No effect on a turn that must "
        "call a tool",
    )
    verbosity: str | None = Field(None, description="without effect")


class ReasoningOptions(Wire):
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = Field(
        None,
        description="`none` turns thinking off where the template can, all others turn it on; the template gets the "
        "word as its variable `reasoning_effort`. Default: as the template does by itself",
    )
    summary: str | None = Field(None, description="without effect: the reasoning comes whole")


class ResponseStreamOptions(Wire):
    include_obfuscation: bool | None = Field(None, description="without effect: nothing is padded")


class ResponseCreateBody(SamplingFields, StopField):
    """One turn of a conversation. Fields that are not listed are ignored."""

    model: str = Field(description="a name from GET /v1/models; `default` is always accepted")
    input: (
        Annotated[
            Annotated[str, Tag("text")] | Annotated[list[Item], FirstErrorOnly(), Tag("list")],
            either("Input should be a string or a list of items"),
        ]
        | None
    ) = Field(
        None,
        description="what is new: a user's message as a string, or items in their order. Required unless a previous "
        "response is named",
    )
    instructions: str | None = Field(
        None, description="a system message that stands first; not carried over to the next response"
    )
    previous_response_id: str | None = Field(
        None, max_length=200, description="go on from this stored response: its input and output come before `input`"
    )
    store: bool | None = Field(None, description="keep the response, for `previous_response_id`. Default true")
    metadata: dict[str, str] | None = Field(
        None, description=f"up to {MAX_METADATA} strings of yours, given back with the response"
    )
    tools: list[FunctionTool] | None = Field(None, fail_fast=True, description="tools the model may call")
    tool_choice: (
        Annotated[
            Annotated[Literal["none", "auto", "required"], Tag("text")] | Annotated[ToolChoiceObject, Tag("object")],
            either('Input should be "none", "auto", "required" or an object'),
        ]
        | None
    ) = Field(
        None,
        description="`auto` (the default): the model decides; `none`: no calls; `required`: at least one call; an "
        "object of type `function`: that call; of type `allowed_tools`: only calls of these",
    )
    parallel_tool_calls: bool | None = Field(None, description="false: at most one call a turn. Default true")
    text: TextOptions | None = Field(None, description="the form of the answer's text")
    reasoning: ReasoningOptions | None = Field(None, description="of models that think before they answer")
    max_output_tokens: int | None = Field(
        None, ge=1, le=2**31 - 1, description="most tokens to generate. Default: as many as the context has room for"
    )
    top_logprobs: int | None = Field(
        None, ge=0, le=MAX_TOP_LOGPROBS, description=f"only with `include` of `{LOGPROBS}`: so many likeliest tokens"
    )
    include: list[str] | None = Field(
        None,
        max_length=32,
        description=f"`{LOGPROBS}`: the log-probability of each token of the text; other values ask for parts of tools "
        "that are not served, or for encrypted reasoning, and are without effect",
    )
    truncation: Literal["disabled"] | None = Field(None, description="the default: what is too long is an error")
    stream: bool | None = Field(None, description="send the answer as server-sent events while it is generated")
    stream_options: ResponseStreamOptions | None = Field(None, description="only with stream")
    user: str | None = Field(None, max_length=512, description="given back, otherwise ignored")
    safety_identifier: str | None = Field(None, max_length=512, description="given back, otherwise ignored")
    prompt_cache_key: str | None = Field(
        None, max_length=512, description="given back, otherwise ignored: equal beginnings share their KV anyway"
    )
    service_tier: str | None = Field(None, description="ignored: there is one tier")
    max_tool_calls: int | None = Field(None, description="ignored: it counts calls of hosted tools")
