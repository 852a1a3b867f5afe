"""One step's tokens: a flat list, cut into sequences of any query length."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class RaggedBatch:
    """T tokens of S sequences, whatever mix of prefill chunks and single decode tokens.

    R rows want logits, H rows their hidden states.
    """

    token_ids: Tensor  # int64 [T]
    positions: Tensor  # int64 [T], consecutive within a sequence
    slots: Tensor  # int64 [T], KV slot of each token: block_table[pos // block_size] * block_size + pos % block_size
    query_starts: tuple[int, ...]  # length S + 1, cumulative: sequence s has rows query_starts[s] to [s + 1]
    kv_lens: tuple[int, ...]  # length S, tokens in KV after this step (start + query length)
    block_tables: Tensor  # int64 [S, max_blocks], padded with 0
    logit_rows: Tensor  # int64 [R], rows of [T] whose logits are wanted
    hidden_rows: Tensor | None = None  # int64 [H], rows whose hidden states after the last norm are wanted; None: none
