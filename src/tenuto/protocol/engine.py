"""The engine as its callers see it: sessions of tokens in, token ids out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from tenuto.ids import SessionId, TokenId
from tenuto.protocol.counters import EngineCounters
from tenuto.protocol.grammar import GrammarSpec
from tenuto.protocol.hints import ExpectedWait, RunHints

FinishReason: TypeAlias = Literal["stop", "length", "grammar"]
"""`stop`: a stop id was sampled (it is the last id). `length`: max_tokens. `grammar`: nothing more may follow."""

Pooling: TypeAlias = Literal["first", "last", "mean"]
"""How the hidden states of a text's tokens become one vector: that of one token, or the mean of all."""


MAX_LOGIT_BIASES = 1024  # ids that one request may favour or disfavour
MAX_TOP_LOGPROBS = 20
MAX_PIECE_BYTES = 1 << 20  # longest piece of an exported session


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How the next token is chosen; the fields are applied in the order they stand here (docs/sampling.md).

    Temperature 0 takes the likeliest token after bias, penalties and grammar; what follows it is then without effect.
    """

    logit_bias: tuple[tuple[TokenId, float], ...] = ()  # distinct ids; -100 .. 100 is added to their logits
    repetition_penalty: float = 1.0  # over prompt and output; above 1: less repetition
    frequency_penalty: float = 0.0  # subtracted once for each time this call has generated the id
    presence_penalty: float = 0.0  # subtracted if this call has generated the id
    temperature: float = 0.0
    top_k: int = 0  # 0: all
    top_p: float = 1.0
    min_p: float = 0.0  # least probability, as a part of the likeliest token's
    seed: int = 0  # random numbers are keyed by (seed, position): same seed, same output, whatever the batch

    @property
    def has_penalties(self) -> bool:
        """Whether the choice depends on which ids came before."""
        return self.repetition_penalty != 1 or self.frequency_penalty != 0 or self.presence_penalty != 0


class GenerateParams(msgspec.Struct, frozen=True, kw_only=True):
    """What one `generate` call wants."""

    max_tokens: int | None = None  # None: as many as the context has room for
    sampling: SamplingParams = SamplingParams()
    stop_ids: frozenset[TokenId] = frozenset()  # end after the first of these; it stays in the session
    grammar: GrammarSpec | None = None
    logprobs: int | None = None  # of every new id, with so many alternatives, up to MAX_TOP_LOGPROBS; None: none
    hints: RunHints = RunHints()


class GenerateUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Where the tokens and the time of one `generate` call went.

    num_prompt = num_held + num_shared + num_computed.
    """

    num_prompt: int = 0  # tokens known when the first new one was chosen
    num_held: int = 0  # of these, their KV was held by this session
    num_shared: int = 0  # of these, their KV was found in the prefix cache
    num_computed: int = 0  # of these, computed by this call
    num_recomputed: int = 0  # computed again because the pool was full (preemption)
    num_generated: int = 0  # new ids, sampled and forced
    num_forced: int = 0  # of the new ids, those the grammar forced (jump-forward)
    num_accepted: int = 0  # of the new ids, sampled ones that were guessed right: each spared a step
    num_steps: int = 0  # engine steps this call took part in
    queued_s: float = 0.0
    ttft_s: float = 0.0  # call to first new id
    total_s: float = 0.0


class TokenLogprob(msgspec.Struct, frozen=True, kw_only=True):
    """The log-probability of one new id: of the model's own logits, before bias, penalties, grammar and temperature.

    An id that the grammar forced was never scored by the model: it is certain, so its log-probability is 0.
    """

    logprob: float
    top: tuple[tuple[TokenId, float], ...] = ()  # the likeliest ids, the chosen one among them or not; likeliest first
    forced: bool = False


FORCED_LOGPROB = TokenLogprob(logprob=0.0, forced=True)


class TokenDelta(msgspec.Struct, frozen=True, kw_only=True):
    """A sampled id and what is forced after it; or only forced ones. The last delta of a stream, and only it, has
    `finish` and `usage`.
    """

    ids: tuple[TokenId, ...] = ()
    num_forced: int = 0  # how many of `ids`, its last ones, were forced
    accepted: bool = False  # the sampled id was guessed right: it comes from the same step as the delta before
    logprobs: tuple[TokenLogprob, ...] = ()  # one for each id, if they were asked for
    finish: FinishReason | None = None
    usage: GenerateUsage | None = None


class PooledStates(msgspec.Struct, frozen=True, kw_only=True):
    """What one `embed` call gives."""

    vector: NDArray[np.float32]  # [hidden_size]
    usage: GenerateUsage


class SessionStats(msgspec.Struct, frozen=True, kw_only=True):
    """What a session holds, and what it cost so far."""

    num_tokens: int
    num_computed: int  # of these, with KV
    num_blocks_owned: int  # blocks nobody else holds
    num_blocks_shared: int  # blocks also held by other sessions
    kv_bytes: int  # owned + shared blocks
    total_computed_tokens: int  # through the model, over the session's life
    total_reused_tokens: int  # held or shared, so not computed, summed over its calls
    waiting_s: float  # time in each phase
    running_s: float
    suspended_s: float
    total_drafted_tokens: int = 0  # guessed ahead
    total_accepted_tokens: int = 0  # of these, right


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is served, and on what."""

    model: str
    fingerprint: str  # of tokenizer and weights: sessions move only between equals
    vocab_size: int
    max_model_tokens: int  # context length: the most tokens a session can hold
    block_size: int  # token slots per KV block
    num_blocks: int
    kv_bytes_per_token: int
    device: str
    precision: str
    row_invariant: bool  # a row's bits do not depend on what else is in the batch
    hidden_size: int = 0  # length of the vectors that `embed` gives


class EngineClient(Protocol):
    """Sessions of tokens. A session computes for one call at a time (SessionBusy otherwise).

    Errors: SessionNotFound, SessionExists, SessionBusy, ContextLengthError, NeverFits, QueueFull, InvalidRequest,
    GrammarError, EngineClosed. A call that raises has changed nothing.
    """

    async def info(self) -> EngineInfo: ...

    async def open(self, session: SessionId, *, parent: SessionId | None = None, hints: RunHints = RunHints()) -> None:
        """New session; with a parent, a copy-on-write fork of its tokens and KV."""
        ...

    async def append(self, session: SessionId, ids: Sequence[TokenId], hints: RunHints = RunHints()) -> None:
        """Add ids and compute them now, without generating; returns when their KV is there."""
        ...

    def generate(
        self, session: SessionId, ids: Sequence[TokenId], params: GenerateParams, *, opening: RunHints | None = None
    ) -> AsyncIterator[TokenDelta]:
        """Add ids, then stream new ones until a stop. Closing the iterator early cancels: the session keeps the ids
        generated so far, and everything else the call held is free at once.

        Args:
            opening: open the session first, with these hints: one call where two would each take their way. It stays
                open, also if the stream breaks off; a call that is refused leaves none.
        """
        ...

    async def embed(self, ids: Sequence[TokenId], pooling: Pooling, hints: RunHints = RunHints()) -> PooledStates:
        """The hidden states of the ids after the last norm, pooled; computed in the same steps as everything else.

        No session is left behind. Only `last` can use KV of the prefix cache; `mean` and `first` need every row.
        Cancelling the call frees all it held at once.
        """
        ...

    async def suspend(self, session: SessionId, wait: ExpectedWait) -> None:
        """The session will be idle, e.g. while a tool runs. The next append or generate resumes it."""
        ...

    async def truncate(self, session: SessionId, num_tokens: int) -> None:
        """Forget every token after the first `num_tokens`."""
        ...

    async def close(self, session: SessionId) -> None:
        """Free the session; a call still running on it ends with Cancelled."""
        ...

    async def release(self, ids: Sequence[TokenId], num_kept: int, hints: RunHints = RunHints()) -> int:
        """Take KV that nobody holds out of the prefix cache: that of `ids` after the first `num_kept`, and of what was
        generated after them, as far as nothing else goes on from there. How many blocks are free by it."""
        ...

    async def stats(self, session: SessionId) -> SessionStats: ...

    async def tokens(self, session: SessionId) -> tuple[TokenId, ...]:
        """The ids that the session holds; while it computes, those so far."""
        ...

    def export(self, session: SessionId) -> AsyncIterator[bytes]:
        """The session as bytes, in pieces of at most MAX_PIECE_BYTES: its tokens, and the KV of its computed part.

        It is exported as it is when the first piece is asked for, and may go on meanwhile; SessionBusy if it computes
        then. Nothing is pinned: where the pool takes its KV back meanwhile, the export ends with fewer computed tokens
        (all tokens are there). Close the iterator when it is not read to its end.
        """
        ...

    async def import_(self, session: SessionId, pieces: AsyncIterator[bytes], hints: RunHints = RunHints()) -> None:
        """Open a session as it was exported, here or elsewhere; the pieces may be cut anywhere, and are not trusted.

        It is there when the call returns, or not at all. Its KV is bit for bit what was exported where this engine
        keeps KV in the same form and has room; the rest is computed when it is next used. What came from outside is
        shared with nobody but the session's forks.

        Raises:
            SessionExists: a session of that name is open.
            SessionFileError: the bytes are no whole exported session, or the fingerprint of its model is another.
            ContextLengthError, NeverFits: it has more tokens than fit here.
        """
        ...

    async def counters(self) -> EngineCounters:
        """Counts since the engine began, and how things stand, for metrics; cheap. EngineClosed once it has stopped."""
        ...
