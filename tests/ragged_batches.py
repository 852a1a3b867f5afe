"""Builds ragged batches by hand, as an executor would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tenuto.model import RaggedBatch


@dataclass(frozen=True)
class Query:
    """Tokens of one sequence from position `start`, whose KV lies in the blocks of `table`."""

    ids: Sequence[int]
    start: int
    table: Sequence[int]


def ragged(queries: Sequence[Query], block_size: int = 16, all_logits: bool = False) -> RaggedBatch:
    """One batch; logits of every row, or of each sequence's last."""
    ids, positions, slots, starts, lengths, last_rows = [], [], [], [0], [], []
    for query in queries:
        places = range(query.start, query.start + len(query.ids))
        ids += query.ids
        positions += places
        slots += [query.table[at // block_size] * block_size + at % block_size for at in places]
        starts.append(len(ids))
        lengths.append(places.stop)
        last_rows.append(len(ids) - 1)
    width = max(len(query.table) for query in queries)
    return RaggedBatch(
        token_ids=torch.tensor(ids),
        positions=torch.tensor(positions),
        slots=torch.tensor(slots),
        query_starts=tuple(starts),
        kv_lens=tuple(lengths),
        block_tables=torch.tensor([[*query.table, *[0] * (width - len(query.table))] for query in queries]),
        logit_rows=torch.arange(len(ids)) if all_logits else torch.tensor(last_rows),
    )
