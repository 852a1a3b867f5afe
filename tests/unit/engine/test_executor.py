"""A batch becomes one ragged forward call."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from tenuto.engine.batch import Batch, BlockCopy, SequenceSlice, StateSum
from tenuto.engine.executor import ModelExecutor, to_ragged
from tenuto.ids import BlockId, RequestId, TokenId
from tenuto.model import RaggedBatch
from tenuto.model.decoder import Rows
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

    def compute(self, batch: RaggedBatch, kv: str) -> Rows:
        assert kv == "kv"
        self.calls.append("compute")
        hidden = None if batch.hidden_rows is None else batch.hidden_rows[:, None] * torch.tensor([[1.0, 0.1]])
        return Rows(torch.eye(64)[10 : 10 + batch.logit_rows.shape[0]], hidden)


def test_copies_then_exactly_one_forward() -> None:
    decoder = RecordingDecoder()
    output = ModelExecutor(decoder, 10).execute(BATCH)  # type: ignore[arg-type]
    assert decoder.calls == ["copy", "compute"]
    assert output.token_ids == (10, 11, None)


def test_a_step_without_samples() -> None:
    decoder = RecordingDecoder()
    output = ModelExecutor(decoder, 10).execute(Batch(1, BATCH.slices[2:]))  # type: ignore[arg-type]
    assert decoder.calls == ["compute"]
    assert output.token_ids == (None,)


class BrokenDecoder(RecordingDecoder):
    """The second row's logits are no finite numbers."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def compute(self, batch: RaggedBatch, kv: str) -> Rows:
        rows = super().compute(batch, kv)
        if len(rows.logits) > 1:
            rows.logits[1, 3] = self.value
        if rows.hidden is not None:
            rows.hidden[0, 1] = self.value
        return rows


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("sampling", [SamplingParams(), SamplingParams(temperature=1.0, top_p=0.5, seed=1)])
def test_no_token_is_chosen_from_what_is_no_number(value: float, sampling: SamplingParams) -> None:
    slices = tuple(msgspec.structs.replace(one, sampling=sampling) for one in BATCH.slices)
    batch = msgspec.structs.replace(BATCH, slices=slices)
    output = ModelExecutor(BrokenDecoder(value), 10).execute(batch)  # type: ignore[arg-type]
    assert output.token_ids[0] is not None and output.token_ids[1:] == (None, None)
    assert output.broken == {1}


def with_states(*states: StateSum | None) -> Batch:
    slices = (msgspec.structs.replace(one, states=sum_) for one, sum_ in zip(BATCH.slices, states, strict=True))
    return msgspec.structs.replace(BATCH, slices=tuple(slices))


def test_hidden_states_are_added_to_what_earlier_slices_gave() -> None:
    """Beside samples, in the same forward call."""
    batch = with_states(StateSum(1, 3, np.array([100.0, 0.0])), None, StateSum(1, 2))
    output = ModelExecutor(RecordingDecoder(), 10).execute(batch)  # type: ignore[arg-type]
    assert output.token_ids == (10, 11, None)
    assert sorted(output.states) == [0, 2]
    np.testing.assert_allclose(output.states[0], [103.0, 0.3])  # rows 1 and 2
    np.testing.assert_allclose(output.states[2], [5.0, 0.5])  # row 5
    assert output.states[0].dtype == np.float64


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_hidden_states_that_are_no_numbers_are_broken(value: float) -> None:
    batch = with_states(None, None, StateSum(0, 2))
    output = ModelExecutor(BrokenDecoder(value), 10).execute(batch)  # type: ignore[arg-type]
    assert output.states == {} and output.broken == {1, 2}


def test_logits_after_the_last_known_token_and_each_draft() -> None:
    slices = (
        msgspec.structs.replace(BATCH.slices[0], num_drafts=2),
        BATCH.slices[1],
        BATCH.slices[2],
        msgspec.structs.replace(BATCH.slices[1], start=9, token_ids=(TokenId(1), TokenId(2)), num_drafts=1),
    )
    assert to_ragged(Batch(1, slices), 4).logit_rows.tolist() == [0, 1, 2, 3, 6, 7]


def test_drafts_are_right_up_to_the_first_that_is_not_chosen() -> None:
    """The logits of the rows prefer 10, 11, 12, 13, ..."""
    for tokens, accepted, token in (
        ([5, 10, 11, 12], 3, 13),
        ([5, 10, 11, 13], 2, 12),
        ([5, 11, 11, 12], 0, 10),
        ([5, 10, 7, 12], 1, 11),
    ):
        one = msgspec.structs.replace(piece(tokens, 0, [1], True), num_drafts=3, logprobs=1)
        output = ModelExecutor(RecordingDecoder(), 10).execute(Batch(1, (one,)))  # type: ignore[arg-type]
        assert output.token_ids == (token,)
        assert output.num_accepted == ({0: accepted} if accepted else {})
        assert [scores.top[0][0] for scores in output.logprobs[0]] == [10 + i for i in range(accepted + 1)]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_broken_after_a_right_draft_is_left_to_the_next_step(value: float) -> None:
    one = msgspec.structs.replace(piece([5, 10, 11], 0, [1], True), num_drafts=2)
    output = ModelExecutor(BrokenDecoder(value), 10).execute(Batch(1, (one,)))  # type: ignore[arg-type]
    assert output.token_ids == (10,) and output.num_accepted == {} and output.broken == frozenset()
