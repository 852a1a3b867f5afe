"""Forward calls without an engine: the same numbers as one whole forward call of the decoder."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ragged_batches import Query, ragged
from runnable_models import write_runnable
from tenuto.checkpoint import open_checkpoint
from tenuto.compare import steps
from tenuto.compare.copies import CopyTask, copied
from tenuto.compare.speed import DECODE, DECODE_MANY, PREFILL, SpeedProbe, speed_reports, time_rounds
from tenuto.compare.steps import Head, Piece, hidden_states, layer_states
from tenuto.device import ReferenceDevice, choose_device
from tenuto.device.protocol import Precision
from tenuto.model import Decoder, load_model

IDS = torch.randint(3, 320, (100,), generator=torch.Generator().manual_seed(1)).tolist()


def decoder(tmp_path: Path, precision: Precision = "fp32") -> Decoder:
    device = choose_device("int8", 1, "int8") if precision == "int8" else ReferenceDevice(precision)
    return load_model(open_checkpoint(write_runnable(tmp_path / "m")), device)


def whole(model: Decoder, ids: list[int]) -> torch.Tensor:
    """Logits of every token."""
    return model.forward(ragged([Query(ids, 0, list(range(16)))], all_logits=True), model.allocate_kv(16))


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("chunk", [7, 512])
def test_recorded_states_make_the_logits_of_the_model(
    tmp_path: Path, precision: Precision, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "CHUNK_TOKENS", chunk)
    model = decoder(tmp_path, precision)
    states = torch.cat(list(hidden_states(model, IDS)))
    assert states.dtype == torch.float32 and states.shape == (100, 64)
    assert torch.equal(Head.of(model).logits(states), whole(model, IDS))


def test_the_last_layers_state_is_what_the_head_sees(tmp_path: Path) -> None:
    model = decoder(tmp_path)
    states = layer_states(model, IDS)
    assert len(states) == 1 + len(model.layers)
    assert torch.equal(states[0], model.embedding(torch.tensor(IDS)))
    normed = model.norm(states[-1])
    assert torch.allclose(Head.of(model).logits(normed), whole(model, IDS), atol=1e-4)
    assert not torch.equal(states[1], states[2])


def test_pieces_of_several_sequences_keep_to_their_own_blocks(tmp_path: Path) -> None:
    model = decoder(tmp_path)
    kv = model.allocate_kv(8)
    model.compute(steps.ragged([Piece(IDS[:20], 0, 0), Piece(IDS[20:60], 0, 2)], 16), kv)
    found = model.forward(steps.ragged([Piece(IDS[20:21], 20, 0), Piece(IDS[60:70], 40, 2)], 16), kv)
    assert torch.allclose(found[0], whole(model, IDS[:21])[-1], atol=1e-4)
    assert torch.allclose(found[1], whole(model, IDS[20:70])[-1], atol=1e-4)


def test_copying_is_what_greedy_decoding_would_write(tmp_path: Path) -> None:
    """A task whose line is the model's own continuation is exact; with another token in it, it is not."""
    model = decoder(tmp_path)
    ids = IDS[:30]
    while len(ids) < 40:
        ids = [*ids, int(whole(model, ids)[-1].argmax())]
    exact = CopyTask("line", tuple(ids[:30]), tuple(ids[30:]))
    line = list(ids[30:])
    line[4] = (line[4] + 1) % 320
    wrong = CopyTask("line", tuple(ids[:30]), tuple(line))
    other = CopyTask("line", tuple(IDS[:9]), tuple(IDS[50:60]))
    found = copied(model, [other, exact, wrong])
    assert [f.is_exact(t) for f, t in zip(found, (other, exact, wrong), strict=True)] == [False, True, False]
    assert found[2].ids[:5] == tuple(ids[30:35])  # up to the place where the line went another way


class TickingClock:
    """Advances by a second whenever it is read."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        self.seconds += 1
        return self.seconds


def test_speeds_are_those_of_whole_rounds(tmp_path: Path) -> None:
    model = decoder(tmp_path)
    probes = [SpeedProbe(model, IDS, TickingClock()) for _ in range(2)]  # type: ignore[arg-type]
    assert [probes[0].num_tokens(what) for what in (PREFILL, DECODE, DECODE_MANY)] == [512, 1, 8]
    done: list[int] = []
    a, b = time_rounds(probes, lambda: done.append(1), num_rounds=3)
    assert len(done) == 3 and a[PREFILL] == [1, 1, 1] and b[DECODE] == [0.25] * 3
    a[PREFILL], b[PREFILL] = [4.0, 9.0, 6.0], [2.0, 3.0, 6.0]
    prefill = speed_reports(a, b, probes[0].num_tokens, is_interleaved=True)[0]
    assert (prefill.a_s, prefill.b_s, prefill.ratio, prefill.num_tokens) == (4, 2, 2, 512)
    apart = speed_reports(a, {**b, PREFILL: [3.0, 1.0, 6.0]}, probes[0].num_tokens, is_interleaved=False)[0]
    assert apart.ratio == 4 and not apart.is_interleaved
