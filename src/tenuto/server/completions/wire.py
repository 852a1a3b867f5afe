"""The request and the answer of POST /v1/completions, field by field."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from tenuto.protocol.chat import MAX_CHOICES
from tenuto.protocol.completion import MAX_COMPLETIONS
from tenuto.protocol.engine import MAX_TOP_LOGPROBS
from tenuto.server.replies import Usage
from tenuto.server.sampling_fields import SamplingFields, StopField
from tenuto.server.text_input import TextsOrIds
from tenuto.server.wire import StreamOptions

DEFAULT_MAX_TOKENS = 16


class CompletionBody(SamplingFields, StopField):
    """Text to go on with. Fields that are not listed are ignored."""

    model: str = Field(description="a name from GET /v1/models; `default` is always accepted")
    prompt: TextsOrIds = Field(
        description=f"one prompt or several: strings or lists of token ids; with `n`, {MAX_COMPLETIONS} completions at "
        "most. No chat template is applied; names of control tokens in a string are those tokens"
    )
    max_tokens: int | None = Field(
        None,
        ge=1,
        le=2**31 - 1,
        description=f"most tokens to generate for each prompt. Default {DEFAULT_MAX_TOKENS}, as in OpenAI's API",
    )
    n: int | None = Field(
        None, ge=1, le=MAX_CHOICES, description="completions of each prompt, which is computed once. Default 1"
    )
    best_of: int | None = Field(None, description="refused unless it equals n: all that is generated is answered")
    echo: bool | None = Field(None, description="the text begins with the prompt; not together with logprobs")
    logprobs: int | None = Field(
        None, ge=0, le=MAX_TOP_LOGPROBS, description="score each token, beside so many of the likeliest at its place"
    )
    stream: bool | None = Field(None, description="send the text as server-sent events while it is generated")
    stream_options: StreamOptions | None = Field(None, description="only with stream")
    ignore_eos: bool | None = Field(
        None, description="extension for benchmarks: generate up to the token limit, past tokens that end a text"
    )
    user: str | None = Field(None, description="ignored")


class CompletionLogprobs(BaseModel):
    """One entry for each token of the text."""

    tokens: list[str] = Field(description="its text; of a part of a character `bytes:` and its bytes")
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] = Field(description="the likeliest at this place, and the token itself")
    text_offset: list[int] = Field(description="where the token begins in the text")


class CompletionChoice(BaseModel):
    text: str
    index: int = Field(description="counts through: n for the first prompt, then n for the second")
    logprobs: CompletionLogprobs | None = Field(None, description="null unless asked for")
    finish_reason: Literal["stop", "length"]


class Completion(BaseModel):
    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int = Field(description="Unix seconds")
    model: str = Field(description="the model's real name, whatever alias was asked for")
    choices: list[CompletionChoice]
    usage: Usage = Field(description="each prompt once, the tokens of all choices")
