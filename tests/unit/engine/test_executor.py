"""A batch becomes one ragged forward call."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch

from tenuto.engine.batch import Batch, BlockCopy, SequenceSlice
from tenuto.engine.executor import ModelExecutor, to_ragged
from tenuto.ids import BlockId, RequestId, TokenId
from tenuto.model import RaggedBatch
from tenuto.protocol.engine import SamplingParams


def piece(tokens: list[int], start: int, table: list[int], samples: bool) -> SequenceSlice:
    ids = tuple(TokenId(t) for t in tokens)
    return SequenceSlice(RequestId("r"), 0, ids, start, tuple(BlockId(b) for b in table), samples)


BATCH = Batch(
    1,
    (
        piece([11, 12, 13], 3, [5, 2], True),  # crosses a block boundary
        piece([21], 8, [7, 1, 9], True),
        piece([31, 32], 0, [0], False),
    ),
    (BlockCopy(BlockId(6), BlockId(7)),),
)


def test_to_ragged() -> None:
    ragged = to_ragged(BATCH, 4)
    assert ragged.token_ids.tolist() == [11, 12, 13, 21, 31, 32]
    assert ragged.positions.tolist() == [3, 4, 5, 8, 0, 1]
    assert ragged.slots.tolist() == [23, 8, 9, 36, 0, 1]
    assert ragged.query_starts == (0, 3, 4, 6)
    assert ragged.kv_lens == (6, 9, 2)
    assert ragged.block_tables.tolist() == [[5, 2, 0], [7, 1, 9], [0, 0, 0]]
    assert ragged.logit_rows.tolist() == [2, 3]
    for tensor in (ragged.token_ids, ragged.positions, ragged.slots, ragged.block_tables, ragged.logit_rows):
        assert tensor.dtype == torch.int64


class RecordingDecoder:
    """Notes what is called, in order; the logits prefer token 10 + row."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.device = SimpleNamespace(block_size=4, copy_blocks=self._copy)

    def _copy(self, kv: Any, pairs: list[tuple[int, int]]) -> None:
        assert kv == "kv" and pairs == [(6, 7)]
        self.calls.append("copy")

    def allocate_kv(self, num_blocks: int) -> str:
        assert num_blocks == 10
        return "kv"

    def forward(self, batch: RaggedBatch, kv: str) -> torch.Tensor:
        assert kv == "kv"
        self.calls.append("forward")
        rows = batch.logit_rows.shape[0]
        return torch.eye(64)[10 : 10 + rows]


def test_copies_then_exactly_one_forward() -> None:
    decoder = RecordingDecoder()
    output = ModelExecutor(decoder, 10).execute(BATCH)  # type: ignore[arg-type]
    assert decoder.calls == ["copy", "forward"]
    assert output.token_ids == (10, 11, None)


def test_a_step_without_samples() -> None:
    decoder = RecordingDecoder()
    output = ModelExecutor(decoder, 10).execute(Batch(1, BATCH.slices[2:]))  # type: ignore[arg-type]
    assert decoder.calls == ["forward"]
    assert output.token_ids == (None,)


class BrokenDecoder(RecordingDecoder):
    """The second row's logits are no finite numbers."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def forward(self, batch: RaggedBatch, kv: str) -> torch.Tensor:
        logits = super().forward(batch, kv)
        logits[1, 3] = self.value
        return logits


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("sampling", [SamplingParams(), SamplingParams(temperature=1.0, top_p=0.5, seed=1)])
def test_no_token_is_chosen_from_what_is_no_number(value: float, sampling: SamplingParams) -> None:
    slices = tuple(msgspec.structs.replace(one, sampling=sampling) for one in BATCH.slices)
    batch = msgspec.structs.replace(BATCH, slices=slices)
    output = ModelExecutor(BrokenDecoder(value), 10).execute(batch)  # type: ignore[arg-type]
    assert output.token_ids[0] is not None and output.token_ids[1:] == (None, None)
    assert output.broken == {1}
