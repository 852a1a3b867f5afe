"""Runs batches on a model: one forward call per step, whatever the mix of prefill chunks and decodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from tenuto.engine.batch import Batch, KVForm, Output, SequenceSlice
from tenuto.engine.sampler import sample
from tenuto.errors import SessionFileError
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

    @property
    def kv_form(self) -> KVForm:
        return KVForm(self._kv.layout, self._kv.token_bytes)

    @torch.inference_mode()
    def read_kv(self, slots: Sequence[int]) -> bytes:
        return self._kv.read_tokens(slots)

    @torch.inference_mode()
    def write_kv(self, slots: Sequence[int], data: bytes) -> None:
        try:
            self._kv.write_tokens(slots, data)
        except ValueError as error:
            raise SessionFileError(f"the exported session is unusable: {error}") from error


def to_ragged(batch: Batch, block_size: int) -> RaggedBatch:
    """The batch as the model takes it; see RaggedBatch for shapes.

    Plain lists: for the few tokens of a decode step they are faster than arrays, and no slower for a chunk.
    """
    token_ids: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    logit_rows: list[int] = []
    tables: list[int] = []
    query_starts = [0]
    width = max(len(piece.block_table) for piece in batch.slices)
    for piece in batch.slices:
        table, start, end = piece.block_table, piece.start, piece.end
        token_ids += piece.token_ids
        positions += range(start, end)
        for block in range(start // block_size, -(-end // block_size)):
            first = block * block_size
            offset = table[block] * block_size - first
            slots += range(offset + max(start, first), offset + min(end, first + block_size))
        num_rows = len(token_ids)
        query_starts.append(num_rows)
        if piece.samples:  # after the last known token, and after each draft
            logit_rows += range(num_rows - piece.num_drafts - 1, num_rows)
        tables += table
        tables += [0] * (width - len(table))
    return RaggedBatch(
        token_ids=_tensor(token_ids),
        positions=_tensor(positions),
        slots=_tensor(slots),
        query_starts=tuple(query_starts),
        kv_lens=tuple(piece.end for piece in batch.slices),
        block_tables=_tensor(tables).view(len(batch.slices), width),
        logit_rows=_tensor(logit_rows),
        hidden_rows=_hidden_rows(batch.slices, query_starts),
    )


def _tensor(numbers: list[int]) -> torch.Tensor:
    return torch.from_numpy(np.array(numbers, dtype=np.int64))  # many times as fast as torch.tensor


def _hidden_rows(slices: Sequence[SequenceSlice], query_starts: Sequence[int]) -> torch.Tensor | None:
    rows = [
        np.arange(start + piece.states.start, start + piece.states.end)
        for piece, start in zip(slices, query_starts, strict=False)
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
