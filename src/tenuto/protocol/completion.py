"""Plain text generation as its callers see it: a prompt as it stands in, the text that follows it out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal, Protocol, TypeAlias

import msgspec

from tenuto.ids import TokenId
from tenuto.protocol.chat import ChatUsage, TextDelta, TokensScored
from tenuto.protocol.engine import SamplingParams
from tenuto.protocol.hints import RunHints

MAX_COMPLETIONS = 128  # of one request: prompts times choices


class CompletionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Prompts to go on with, each by itself, without a chat template."""

    prompts: tuple[str | tuple[TokenId, ...], ...]
    """Of a text, control tokens' names become their ids, and the id that starts a text stands first if the model wants
    it; ids are taken as they are."""
    max_tokens: int | None = None  # of each completion; None: as many as the context has room for
    sampling: SamplingParams = SamplingParams()
    n: int = 1  # choices for each prompt, which is computed once; each has a seed of its own
    logprobs: int | None = None  # score every new token, with so many alternatives; see GenerateParams
    stop: tuple[str, ...] = ()  # stop strings: the text ends before the first of them
    echo: bool = False  # the prompt's text comes first
    ignore_eos: bool = False  # go on past ids that end a turn, until max_tokens; for benchmarks
    hints: RunHints = RunHints()


class CompletionFinished(msgspec.Struct, frozen=True, kw_only=True, tag="completion_finished"):
    """The last event of a choice."""

    reason: Literal["stop", "length"]
    usage: ChatUsage  # the prompt is counted with the first choice of each
    choice: int = 0


CompletionEvent: TypeAlias = TextDelta | TokensScored | CompletionFinished
"""`choice` counts through: n for the first prompt, then n for the second."""


class CompletionClient(Protocol):
    """A model behind plain prompts.

    Errors: RequestError and CapacityError kinds, Cancelled, EngineClosed.
    """

    def complete(self, request: CompletionRequest) -> AsyncIterator[CompletionEvent]:
        """The events of all choices, interleaved. Closing the iterator early cancels all; so does an error of one."""
        ...
