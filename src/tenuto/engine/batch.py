"""What the core hands an executor, what comes back, and what the core tells the callers.

Plain values that could cross a process: an executor may be local or one process per rank.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from tenuto.errors import TenutoError
from tenuto.ids import BlockId, RequestId, TokenId
from tenuto.protocol.engine import SamplingParams, TokenDelta
from tenuto.protocol.grammar import TokenMask


class BlockCopy(msgspec.Struct, frozen=True):
    """Copy the KV of a whole block, all layers, before anything is computed.

    The targets of a batch are distinct, and none of them is also a source: the order does not matter. A source may
    be written by a slice of the same batch, so all copies come first.
    """

    source: BlockId
    target: BlockId


class SequenceSlice(msgspec.Struct, frozen=True):
    """The part of one sequence that a step computes: tokens `start .. start + len(token_ids) - 1`."""

    request: RequestId
    attempt: int  # times the request was preempted; an output of an older attempt is ignored
    token_ids: tuple[TokenId, ...]
    start: int
    block_table: tuple[BlockId, ...]  # blocks of tokens 0 .. start + len(token_ids) - 1
    samples: bool = False  # choose the token after the last one
    sampling: SamplingParams = SamplingParams()
    mask: TokenMask | None = None  # tokens that may be chosen; None: all

    @property
    def end(self) -> int:
        """Tokens in KV after this step; also the position of the token that is chosen."""
        return self.start + len(self.token_ids)


class Batch(msgspec.Struct, frozen=True):
    """One step: block copies first, then one forward over all slices."""

    step: int  # counts from 1
    slices: tuple[SequenceSlice, ...]
    copies: tuple[BlockCopy, ...] = ()

    @property
    def num_tokens(self) -> int:
        return sum(len(s.token_ids) for s in self.slices)


class Output(msgspec.Struct, frozen=True):
    """The chosen ids, one per slice of the batch in its order; None where the slice does not sample.

    Or where nothing could be chosen, since the logits were no finite numbers: `broken` holds the indices of those.
    """

    token_ids: tuple[TokenId | None, ...]
    broken: frozenset[int] = frozenset()


class Executor(Protocol):
    """Computes batches, one after the other. May run in a worker thread; any exception fails the batch."""

    def execute(self, batch: Batch) -> Output: ...


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """News for the caller of one request. After a delta with `done` there are no more."""

    request: RequestId
    tokens: TokenDelta | None = None  # None in an error; without ids when an append is done
    error: TenutoError | None = None
    done: bool = False


class EngineCounters(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since the engine began."""

    num_steps: int = 0
    num_computed_tokens: int = 0
    num_recomputed_tokens: int = 0  # of these, again after preemption
    num_sampled_tokens: int = 0
    num_forced_tokens: int = 0
    num_shared_tokens: int = 0  # found in the prefix cache
    num_preemptions: int = 0
    num_discards: int = 0  # sessions that lost their KV while idle or waiting
    num_evictions: int = 0  # cached blocks recycled
    num_copies: int = 0  # blocks copied on write
    num_failed_steps: int = 0
