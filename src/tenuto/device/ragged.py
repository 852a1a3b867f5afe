"""One step's tokens: a flat list, cut into sequences of any query length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Part:
    """The next tokens of one sequence."""

    ids: Sequence[int]
    start: int  # tokens of the sequence that are in KV already
    table: Sequence[int]  # blocks of all its tokens, these included; more may follow


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

    @classmethod
    def of(cls, parts: Sequence[Part], block_size: int, *, hidden: bool = False) -> RaggedBatch:
        """Each part wants the logits of its last token, or the hidden states of all its tokens.

        For steps made without an engine: plain rather than fast.
        """
        ends = [part.start + len(part.ids) for part in parts]
        positions, slots, starts = [], [], [0]
        tables = torch.zeros(len(parts), max(len(part.table) for part in parts), dtype=torch.int64)
        for row, (part, end) in enumerate(zip(parts, ends, strict=True)):
            at = torch.arange(part.start, end)
            tables[row, : len(part.table)] = torch.tensor(part.table)
            positions.append(at)
            slots.append(tables[row, at // block_size] * block_size + at % block_size)
            starts.append(starts[-1] + len(part.ids))
        return cls(
            token_ids=torch.tensor([token for part in parts for token in part.ids]),
            positions=torch.cat(positions),
            slots=torch.cat(slots),
            query_starts=tuple(starts),
            kv_lens=tuple(ends),
            block_tables=tables,
            logit_rows=torch.empty(0, dtype=torch.int64) if hidden else torch.tensor(starts[1:]) - 1,
            hidden_rows=torch.arange(starts[-1]) if hidden else None,
        )
