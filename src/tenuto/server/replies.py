"""The answers, field by field: they document the API, and the ones that are not on the token path are built from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field

from tenuto.protocol.chat import ChatUsage, ScoredToken, TokenScore
from tenuto.server.description import json_content


class CachedTokens(BaseModel):
    cached_tokens: int = Field(description="prompt tokens that were not computed: held by the session or shared")


class CompletionDetails(BaseModel):
    reasoning_tokens: int = Field(description="of the tokens generated, those of the reasoning, its tags among them")


class Reuse(BaseModel):
    """Extension: where the prompt's tokens came from; held + shared + computed = `prompt_tokens`."""

    held_tokens: int = Field(description="their KV was held by the session")
    shared_tokens: int = Field(description="their KV was found in the prefix cache")
    computed_tokens: int
    reuse_break: str | None = Field(
        description="why KV of earlier turns could not be used in full, e.g. `history differs at message 3`; null if "
        "it could, or none was to be expected"
    )


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int = Field(description="tokens generated, those a grammar forced among them")
    total_tokens: int
    prompt_tokens_details: CachedTokens
    completion_tokens_details: CompletionDetails
    tenuto: Reuse


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
    reasoning_content: str | None = Field(
        None, description="what the model thought before it answered; left out if nothing"
    )
    tool_calls: list[ToolCallReply] | None = Field(None, description="left out if there are none")


class TopLogprob(BaseModel):
    token: str = Field(description="its text; U+FFFD for a part of a character, see `bytes`")
    logprob: float = Field(description="natural logarithm of its probability, -9999 for none")
    bytes: list[int] = Field(description="what it stands for")


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob] = Field(description="the likeliest tokens at this place, likeliest first")
    forced: bool | None = Field(
        None, description="extension: true for a token that the grammar forced, which was not scored: its logprob is 0"
    )


class ChoiceLogprobs(BaseModel):
    """Every token of the answer, those of tool calls among them. Of the logits as the model gave them: before bias,
    penalties, grammar and temperature."""

    content: list[TokenLogprob]
    reasoning_content: list[TokenLogprob] | None = Field(
        None, description="the tokens of the reasoning, its tags among them; left out if there are none"
    )
    refusal: None = None


class Choice(BaseModel):
    index: int = Field(0, description="from 0 to n - 1")
    message: AssistantMessage
    finish_reason: Literal["stop", "length", "tool_calls"] = Field(
        description="`stop`: the model ended its turn, or a stop string came; `length`: the token limit; `tool_calls`: "
        "the calls wait for their results"
    )
    logprobs: ChoiceLogprobs | None = Field(None, description="null unless asked for")


class ChatCompletion(BaseModel):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int = Field(description="Unix seconds")
    model: str = Field(description="the model's real name, whatever alias was asked for")
    choices: list[Choice]
    usage: Usage = Field(description="the prompt once, the tokens of all choices")


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


class Ready(BaseModel):
    status: Literal["ready"] = "ready"
    model: str


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None = Field(description="path of the field that is wrong, if it is one field")
    code: str | None = Field(description="stable name of the kind of error")


class ErrorReply(BaseModel):
    error: ErrorDetail


def error_response(description: str) -> dict[str, Any]:
    """A row of a route's `responses`. By its name: FastAPI would build a validator for every route and status."""
    return {"description": description, "content": json_content(ErrorReply)}


ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    400: error_response("The request cannot be done as asked; `param` names the field"),
    401: error_response("No API key was given, or one that is not known"),
    404: error_response("No model of that name is served"),
    413: error_response("The body is too large"),
    429: error_response("Too much is waiting already; come back after `Retry-After` seconds"),
    500: error_response("The server failed; the error was logged"),
    503: error_response("The engine has stopped, or the server is stopping"),
}


def usage_reply(usages: Sequence[ChatUsage]) -> dict[str, Any]:
    """The wire form of `Usage`, of all choices together."""
    num_prompt = sum(usage.num_prompt for usage in usages)
    num_generated = sum(usage.num_generated for usage in usages)
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_generated,
        "total_tokens": num_prompt + num_generated,
        "prompt_tokens_details": {"cached_tokens": sum(usage.num_held + usage.num_shared for usage in usages)},
        "completion_tokens_details": {"reasoning_tokens": sum(usage.num_reasoning for usage in usages)},
        "tenuto": reuse_reply(usages),
    }


def reuse_reply(usages: Sequence[ChatUsage]) -> dict[str, Any]:
    """The wire form of `Reuse`."""
    return {
        "held_tokens": sum(usage.num_held for usage in usages),
        "shared_tokens": sum(usage.num_shared for usage in usages),
        "computed_tokens": sum(usage.num_computed for usage in usages),
        "reuse_break": next((usage.reuse_break for usage in usages if usage.reuse_break is not None), None),
    }


def logprobs_reply(scores: Sequence[TokenScore]) -> dict[str, Any] | None:
    """The wire form of `ChoiceLogprobs`; None where nothing was scored."""
    if not scores:
        return None
    content: list[dict[str, Any]] = []
    reasoning: list[dict[str, Any]] = []
    for score in scores:
        one = _scored(score.token) | {"top_logprobs": [_scored(other) for other in score.top]}
        place = reasoning if score.reasoning else content
        place.append(one | {"forced": True} if score.forced else one)
    reply = {"content": content, "refusal": None}
    return reply | {"reasoning_content": reasoning} if reasoning else reply


def _scored(token: ScoredToken) -> dict[str, Any]:
    return {
        "token": token.data.decode("utf-8", errors="replace"),
        "logprob": finite_logprob(token.logprob),
        "bytes": list(token.data),
    }


def finite_logprob(logprob: float) -> float:
    """JSON knows no infinity; -9999 is OpenAI's word for it."""
    return max(logprob, -9999.0)
