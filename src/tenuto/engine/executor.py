"""Runs batches on a model: one forward call per step, whatever the mix of prefill chunks and decodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from tenuto.engine.batch import Batch, Output, SequenceSlice
from tenuto.engine.sampler import sample
from tenuto.ids import TokenId
from tenuto.model import Decoder, RaggedBatch


class ModelExecutor:
    """Implements `Executor` with a decoder in this process.

    Args:
        decoder: the loaded model; its device names the block size.
        num_blocks: size of the one preallocated KV pool.
    """

    def __init__(self, decoder: Decoder, num_blocks: int) -> None:
        self._decoder = decoder
        self._block_size = decoder.device.block_size
        self._kv = decoder.allocate_kv(num_blocks)

    @torch.inference_mode()
    def execute(self, batch: Batch) -> Output:
        """Copies first, then one forward over all slices, then an id or a sum of states for each that wants it."""
        if batch.copies:
            self._decoder.device.copy_blocks(self._kv, [(c.source, c.target) for c in batch.copies])
        logits, hidden = self._decoder.compute(to_ragged(batch, self._block_size), self._kv)
        states = {} if hidden is None else _sums(batch, hidden.numpy())
        broken = {index for index, total in states.items() if not np.isfinite(total).all()}
        states = {index: total for index, total in states.items() if index not in broken}
        sampling = [index for index, piece in enumerate(batch.slices) if piece.samples]
        ids: list[TokenId | None] = [None] * len(batch.slices)
        if not sampling:
            return Output(tuple(ids), frozenset(broken), states=states)
        chosen = sample(logits.cpu().numpy(), [batch.slices[index] for index in sampling])
        for index, token in zip(sampling, chosen.ids, strict=True):
            ids[index] = token
        return Output(
            tuple(ids),
            frozenset(broken.union(index for index in sampling if ids[index] is None)),
            {index: count for index, count in zip(sampling, chosen.num_accepted, strict=True) if count},
            {index: scores for index, scores in zip(sampling, chosen.logprobs, strict=True) if scores},
            states,
        )


def to_ragged(batch: Batch, block_size: int) -> RaggedBatch:
    """The batch as the model takes it; see RaggedBatch for shapes."""
    slices = batch.slices
    lengths = np.array([len(s.token_ids) for s in slices])
    query_starts = np.concatenate(([0], np.cumsum(lengths)))
    sequence = np.repeat(np.arange(len(slices)), lengths)
    starts = np.array([s.start for s in slices])
    positions = np.arange(query_starts[-1]) + np.repeat(starts - query_starts[:-1], lengths)
    tables = np.zeros((len(slices), max(len(s.block_table) for s in slices)), dtype=np.int64)
    for row, piece in enumerate(slices):
        tables[row, : len(piece.block_table)] = piece.block_table
    slots = tables[sequence, positions // block_size] * block_size + positions % block_size
    return RaggedBatch(
        token_ids=torch.from_numpy(np.concatenate([np.array(s.token_ids, dtype=np.int64) for s in slices])),
        positions=torch.from_numpy(positions),
        slots=torch.from_numpy(slots),
        query_starts=tuple(query_starts.tolist()),
        kv_lens=tuple(s.end for s in slices),
        block_tables=torch.from_numpy(tables),
        logit_rows=_logit_rows(slices, query_starts),
        hidden_rows=_hidden_rows(slices, query_starts),
    )


def _logit_rows(slices: Sequence[SequenceSlice], query_starts: NDArray[np.int64]) -> torch.Tensor:
    """The last known token and the drafts of each slice that samples."""
    rows = [
        row
        for piece, end in zip(slices, query_starts[1:].tolist(), strict=True)
        if piece.samples
        for row in range(end - piece.num_drafts - 1, end)
    ]
    return torch.tensor(rows, dtype=torch.int64)


def _hidden_rows(slices: Sequence[SequenceSlice], query_starts: NDArray[np.int64]) -> torch.Tensor | None:
    rows = [
        np.arange(start + piece.states.start, start + piece.states.end)
        for piece, start in zip(slices, query_starts.tolist(), strict=False)
        if piece.states is not None
    ]
    return torch.from_numpy(np.concatenate(rows)) if rows else None


def _sums(batch: Batch, hidden: NDArray[np.float32]) -> dict[int, NDArray[np.float64]]:
    """The sum of each slice that wants one; `hidden` are the rows of all of them, [H, hidden]."""
    sums: dict[int, NDArray[np.float64]] = {}
    at = 0
    for index, piece in enumerate(batch.slices):
        if piece.states is None:
            continue
        carry = piece.states.carry
        total = np.zeros(hidden.shape[1]) if carry is None else carry.copy()
        end = at + piece.states.end - piece.states.start
        for row in hidden[at:end]:
            total += row
        sums[index], at = total, end
    return sums
