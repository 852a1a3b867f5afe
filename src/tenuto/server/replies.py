"""The answers, field by field: they document the API, and the ones that are not on the token path are built from it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from tenuto.protocol.chat import ChatUsage


class CachedTokens(BaseModel):
    cached_tokens: int = Field(description="prompt tokens that were not computed: held by the session or shared")


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int = Field(description="tokens generated, those a grammar forced among them")
    total_tokens: int
    prompt_tokens_details: CachedTokens


class FunctionCallReply(BaseModel):
    name: str
    arguments: str = Field(description="a JSON object as text")


class ToolCallReply(BaseModel):
    id: str
    type: Literal["function"] = "function"
    function: FunctionCallReply


class AssistantMessage(BaseModel):
    """Sent back as history unchanged, it keeps the tokens it was generated with."""

    role: Literal["assistant"] = "assistant"
    content: str | None = Field(description="null if the turn is tool calls only")
    refusal: None = None
    tool_calls: list[ToolCallReply] | None = Field(None, description="left out if there are none")


class Choice(BaseModel):
    index: int = 0
    message: AssistantMessage
    finish_reason: Literal["stop", "length", "tool_calls"] = Field(
        description="`stop`: the model ended its turn, or a stop string came; `length`: the token limit; `tool_calls`: "
        "the calls wait for their results"
    )
    logprobs: None = None


class ChatCompletion(BaseModel):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int = Field(description="Unix seconds")
    model: str = Field(description="the model's real name, whatever alias was asked for")
    choices: list[Choice]
    usage: Usage


class ModelCard(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int = Field(description="Unix seconds")
    owned_by: str = "tenuto"
    max_model_tokens: int = Field(description="extension: context length, prompt and answer together")


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelCard] = Field(description="one for each accepted name, the real one first")


class Health(BaseModel):
    status: Literal["ok"] = "ok"
    model: str


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None = Field(description="path of the field that is wrong, if it is one field")
    code: str | None = Field(description="stable name of the kind of error")


class ErrorReply(BaseModel):
    error: ErrorDetail


ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorReply, "description": "The request cannot be done as asked; `param` names the field"},
    404: {"model": ErrorReply, "description": "No model of that name is served"},
    413: {"model": ErrorReply, "description": "The body is too large"},
    429: {"model": ErrorReply, "description": "Too much is waiting already; come back after `Retry-After` seconds"},
    500: {"model": ErrorReply, "description": "The server failed; the error was logged"},
    503: {"model": ErrorReply, "description": "The engine has stopped"},
}


def usage_reply(usage: ChatUsage) -> dict[str, Any]:
    """The wire form of `Usage`."""
    return {
        "prompt_tokens": usage.num_prompt,
        "completion_tokens": usage.num_generated,
        "total_tokens": usage.num_prompt + usage.num_generated,
        "prompt_tokens_details": {"cached_tokens": usage.num_held + usage.num_shared},
    }
