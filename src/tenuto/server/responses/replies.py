"""The answers of the Responses API, field by field, for its description."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from tenuto.server.replies import Reuse


class InputTokensDetails(BaseModel):
    cached_tokens: int = Field(description="input tokens that were not computed again")
    cache_write_tokens: int = Field(0, description="tokens charged for being cached: none")


class OutputTokensDetails(BaseModel):
    reasoning_tokens: int


class ResponseUsage(BaseModel):
    input_tokens: int = Field(description="the whole prompt, earlier responses among it")
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int
    tenuto: Reuse


class ResponseFailure(BaseModel):
    code: str
    message: str


class IncompleteDetails(BaseModel):
    reason: Literal["max_output_tokens"]


class ResponseReply(BaseModel):
    """A response. The fields of its request that are not listed here are repeated in it."""

    id: str
    object: Literal["response"] = "response"
    created_at: int = Field(description="Unix seconds")
    completed_at: int | None = Field(description="Unix seconds; null unless completed")
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    model: str = Field(description="the model's real name, whatever alias was asked for")
    output: list[dict[str, Any]] = Field(
        description="items in the order they were generated: `reasoning`, `message`, `function_call`"
    )
    error: ResponseFailure | None
    incomplete_details: IncompleteDetails | None
    usage: ResponseUsage | None


class ItemListReply(BaseModel):
    object: Literal["list"] = "list"
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedReply(BaseModel):
    id: str
    object: Literal["response"] = "response"
    deleted: Literal[True] = True
