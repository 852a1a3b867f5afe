"""The model as agents and servers see it: messages in, events out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal, Protocol, TypeAlias

import msgspec

from tenuto.ids import CallId, SessionId, TokenId
from tenuto.protocol.engine import SamplingParams
from tenuto.protocol.grammar import GrammarSpec, Relaxation
from tenuto.protocol.hints import ExpectedWait, RunHints
from tenuto.protocol.messages import Message, ToolCall, ToolSpec

ChatFinishReason: TypeAlias = Literal["stop", "length", "tool_calls"]
MAX_CHOICES = 16


class NamedTool(msgspec.Struct, frozen=True):
    """Tool choice: this very tool must be called."""

    name: str


ToolChoice: TypeAlias = Literal["auto", "none", "required"] | NamedTool


class AllowedTools(msgspec.Struct, frozen=True):
    """Tool choice: as the mode says, but only these of the tools. The model is told of all, so the prompt stays."""

    names: tuple[str, ...]
    mode: Literal["auto", "required"] = "auto"


TemplateOption: TypeAlias = bool | int | float | str


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One turn: the whole conversation so far, and how to continue it."""

    messages: tuple[Message, ...]
    examples: tuple[Message, ...] = ()  # worked examples, rendered as turns after the system message
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice | AllowedTools = "auto"
    parallel_tool_calls: bool = True
    response: GrammarSpec | None = None  # what the reply's text must be; with tools, unless it calls one
    max_tokens: int | None = None
    sampling: SamplingParams = SamplingParams()
    n: int = 1  # choices, up to MAX_CHOICES; more than 1 only without a session. Each has a seed of its own
    logprobs: int | None = None  # score every token, with so many alternatives; see GenerateParams
    stop: tuple[str, ...] = ()  # stop strings: the text ends before the first of them
    thinking: bool | None = None  # whether the model thinks before it answers; None: as its template does by itself
    template_options: tuple[tuple[str, TemplateOption], ...] = ()  # variables of the chat template, each once
    ignore_eos: bool = False  # go on past end-of-turn ids until max_tokens; for benchmarks
    session: SessionId | None = None  # continue this held session, opening it if new; None: a stateless request
    hints: RunHints = RunHints()


class ChatUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens and time of one turn. num_prompt = num_held + num_shared + num_computed.

    With several choices the prompt is counted once, with the first, so that the sum over them is right; what the
    others compute of it again, each its last token, is in their num_recomputed.
    """

    num_prompt: int = 0
    num_held: int = 0  # KV held by the session
    num_shared: int = 0  # KV found in the prefix cache
    num_computed: int = 0
    num_recomputed: int = 0  # again, after preemption
    num_generated: int = 0
    num_reasoning: int = 0  # of these, those of the reasoning, its tags among them
    num_forced: int = 0
    num_accepted: int = 0  # sampled ones that were guessed right, without a step of their own
    num_steps: int = 0
    queued_s: float = 0.0
    ttft_s: float = 0.0
    total_s: float = 0.0
    reuse_break: str | None = None  # why held tokens could not all be reused, e.g. "history differs at message 3"


class TextDelta(msgspec.Struct, frozen=True, kw_only=True, tag="text"):
    """Text for the user: whole characters only."""

    text: str
    choice: int = 0  # of every event: which of the request's choices it belongs to


class ReasoningDelta(msgspec.Struct, frozen=True, kw_only=True, tag="reasoning"):
    """What the model thinks before it answers: whole characters only, without the tags around it. No text for the user:
    stop strings, tool calls and grammars begin after it."""

    text: str
    choice: int = 0


class ScoredToken(msgspec.Struct, frozen=True, kw_only=True):
    id: TokenId
    data: bytes  # what the token stands for; a part of a character, perhaps; of a control token its name
    logprob: float  # natural logarithm, at most 0


class TokenScore(msgspec.Struct, frozen=True, kw_only=True):
    """One generated token, and what might have been in its place. See TokenLogprob for what is scored."""

    token: ScoredToken
    top: tuple[ScoredToken, ...] = ()  # likeliest first; the token itself among them or not
    forced: bool = False  # by the grammar: certain, not scored
    reasoning: bool = False  # of the reasoning, its tags included, not of the answer


class TokensScored(msgspec.Struct, frozen=True, kw_only=True, tag="tokens_scored"):
    """Only if log-probabilities were asked for: the next tokens of the reply, before the text or calls they complete.

    All that the reply keeps, each once and in order; not the one that ends the turn, nor those of a stop string.
    """

    tokens: tuple[TokenScore, ...]
    choice: int = 0


class ToolCallStarted(msgspec.Struct, frozen=True, kw_only=True, tag="tool_call_started"):
    index: int  # place among the calls of this turn
    id: CallId
    name: str
    choice: int = 0


class ToolCallDelta(msgspec.Struct, frozen=True, kw_only=True, tag="tool_call_delta"):
    """A piece of the arguments' JSON text, as generated; the pieces of a call concatenate to its whole."""

    index: int
    arguments: str
    choice: int = 0


class ToolCallFinished(msgspec.Struct, frozen=True, kw_only=True, tag="tool_call_finished"):
    index: int
    call: ToolCall
    choice: int = 0


class ReplyFinished(msgspec.Struct, frozen=True, kw_only=True, tag="reply_finished"):
    """The last event of a choice."""

    reason: ChatFinishReason
    message: Message  # the assistant message whole; sent back as history it keeps its generated ids
    usage: ChatUsage
    token_ids: tuple[TokenId, ...] = ()  # as generated
    choice: int = 0
    relaxed: tuple[Relaxation, ...] = ()  # what of the tools' schemas was not held


ModelEvent: TypeAlias = (
    ReasoningDelta | TextDelta | TokensScored | ToolCallStarted | ToolCallDelta | ToolCallFinished | ReplyFinished
)


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    max_model_tokens: int
    device: str = ""
    precision: str = ""


class ModelClient(Protocol):
    """A model behind messages: ours over an engine, or a remote server.

    Errors: RequestError and CapacityError kinds, Cancelled, EngineClosed.
    """

    async def info(self) -> ModelInfo: ...

    def stream(self, request: ChatRequest) -> AsyncIterator[ModelEvent]:
        """Continue the conversation; the events of several choices come interleaved, each ends with ReplyFinished.

        Closing the iterator early cancels all of them; what was generated is forgotten. So does an error of one.
        """
        ...

    async def suspend(self, session: SessionId, wait: ExpectedWait) -> None:
        """The conversation waits, e.g. for a tool. Best effort: a session that is gone is no error."""
        ...

    async def close(self, session: SessionId) -> None:
        """Forget a held conversation. Closing one that is not open is no error."""
        ...
