"""Encoders against `transformers` in fp32; the same bits alone and in any batch."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from tenuto.checkpoint.encoders import open_encoder
from tenuto.device import ReferenceDevice
from tenuto.model import Encoder, load_encoder
from tiny_encoders import (
    bert,
    bert_classifier,
    roberta,
    save_encoder,
    xlm_roberta,
    xlm_roberta_classifier,
)

ENCODERS: dict[str, Callable[[], PreTrainedModel]] = {
    "bert": bert,
    "bert, gelu as tanh": lambda: bert(hidden_act="gelu_new"),
    "bert, odd sizes": lambda: bert(hidden_size=33, num_attention_heads=3, intermediate_size=41, vocab_size=51),
    "bert, three token types": lambda: bert(type_vocab_size=3, layer_norm_eps=1e-5),
    "roberta": roberta,
    "xlm-roberta": xlm_roberta,
}
CLASSIFIERS: dict[str, Callable[[], PreTrainedModel]] = {
    "bert": bert_classifier,
    "bert, three classes": lambda: bert_classifier(3),
    "xlm-roberta": xlm_roberta_classifier,
}
LENGTHS = (1, 2, 17, 33, 60, 7)


def loaded(directory: Path, model: PreTrainedModel) -> Encoder:
    return load_encoder(open_encoder(save_encoder(directory, model)), ReferenceDevice())


def some_texts(model: PreTrainedModel) -> tuple[list[list[int]], list[list[int]]]:
    """Ids and token types; none is padding, which has a position of its own in RoBERTa."""
    draw = np.random.default_rng(5)
    ids = [draw.integers(4, model.config.vocab_size, n).tolist() for n in LENGTHS]
    types = [np.sort(draw.integers(0, model.config.type_vocab_size, n)).tolist() for n in LENGTHS]
    return ids, types


def oracle(model: PreTrainedModel, ids: list[int], types: list[int]) -> torch.Tensor:
    """Last hidden states [n, hidden], or a classifier's logits [1, labels]."""
    with torch.inference_mode():
        out = model(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([types]))
    return out.logits if hasattr(out, "logits") else out.last_hidden_state[0]


@pytest.mark.parametrize("make", ENCODERS.values(), ids=ENCODERS)
def test_hidden_states_match(tmp_path: Path, make: Callable[[], PreTrainedModel]) -> None:
    model = make()
    ids, types = some_texts(model)
    states, starts = loaded(tmp_path, model).hidden_states(ids, types)
    for index, text in enumerate(ids):
        ours = states[starts[index] : starts[index + 1]]
        torch.testing.assert_close(ours, oracle(model, text, types[index]), atol=1e-4, rtol=0)


@pytest.mark.parametrize("make", CLASSIFIERS.values(), ids=CLASSIFIERS)
def test_scores_match(tmp_path: Path, make: Callable[[], PreTrainedModel]) -> None:
    model = make()
    ids, types = some_texts(model)
    scores = loaded(tmp_path, model).scores(ids, types)
    expected = torch.cat([oracle(model, *text) for text in zip(ids, types, strict=True)])
    torch.testing.assert_close(torch.from_numpy(scores), expected, atol=1e-4, rtol=0)


def test_pooling_is_what_it_says(tmp_path: Path) -> None:
    model = bert()
    ids, types = some_texts(model)
    encoder = loaded(tmp_path, model)
    poolings = ["first", "last", "mean"] * 2
    vectors = encoder.pooled(ids, types, poolings)  # type: ignore[arg-type]
    for index, pooling in enumerate(poolings):
        states = oracle(model, ids[index], types[index])
        naive = {"first": states[0], "last": states[-1], "mean": states.sum(0) / len(states)}[pooling]
        torch.testing.assert_close(torch.from_numpy(vectors[index]), naive, atol=1e-4, rtol=0)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8", "int4"])
def test_a_text_has_the_same_bits_alone_and_in_any_batch(tmp_path: Path, precision: str) -> None:
    model = bert_classifier(hidden_size=96, num_attention_heads=4, intermediate_size=200)
    encoder = load_encoder(open_encoder(save_encoder(tmp_path, model)), ReferenceDevice(precision))  # type: ignore[arg-type]
    assert encoder.device.row_invariant, "this machine's products depend on the number of rows"
    rng = random.Random(3)
    texts = [[rng.randrange(4, 64) for _ in range(rng.choice((1, 3, 9, 30, 70)))] for _ in range(24)]

    def run(order: list[int]) -> dict[int, tuple[bytes, bytes]]:
        some = [texts[i] for i in order]
        types = [[0] * len(text) for text in some]
        vectors, scores = encoder.pooled(some, types, ["mean"] * len(some)), encoder.scores(some, types)
        return {i: (vectors[at].tobytes(), scores[at].tobytes()) for at, i in enumerate(order)}

    alone = {i: bits for i in range(len(texts)) for bits in run([i]).values()}
    for size in (2, 5, 24):
        order = rng.sample(range(len(texts)), size)
        assert run(order) == {i: alone[i] for i in order}


def test_a_long_text_is_computed_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would take more memory at once than is allowed gives the same states."""
    model = bert()
    encoder = loaded(tmp_path, model)
    ids = [np.random.default_rng(1).integers(4, 64, 70).tolist()]
    whole, _ = encoder.hidden_states(ids, [[0] * 70])
    monkeypatch.setattr("tenuto.device.full_attention._MAX_SCORES", 4 * 70 * 16)
    parts, _ = encoder.hidden_states(ids, [[0] * 70])
    torch.testing.assert_close(parts, whole, atol=1e-5, rtol=0)


def test_bf16_stays_near_fp32(tmp_path: Path) -> None:
    model = bert(hidden_size=64)
    checkpoint = open_encoder(save_encoder(tmp_path, model))
    ids, types = some_texts(model)
    wide, narrow = (
        load_encoder(checkpoint, ReferenceDevice(precision)).pooled(ids, types, ["mean"] * len(ids))
        for precision in ("fp32", "bf16")
    )
    cosines = (wide * narrow).sum(1) / np.linalg.norm(wide, axis=1) / np.linalg.norm(narrow, axis=1)
    assert (cosines > 0.999).all() and not np.array_equal(wide, narrow)


def test_names_of_the_oldest_checkpoints(tmp_path: Path) -> None:
    """Norms by TensorFlow's words, a prefix, heads of other tasks, and buffers of whole numbers."""
    model = bert()
    encoder = loaded(tmp_path / "new", model)
    stored = load_file(tmp_path / "new" / "model.safetensors")
    old = {
        "bert."
        + name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): values
        for name, values in stored.items()
    }
    old |= {"cls.predictions.bias": torch.zeros(64), "bert.embeddings.position_ids": torch.arange(70)[None]}
    save_encoder(tmp_path / "old", model)
    save_file(old, tmp_path / "old" / "model.safetensors")
    again = load_encoder(open_encoder(tmp_path / "old"), ReferenceDevice())
    ids, types = some_texts(model)
    assert torch.equal(again.hidden_states(ids, types)[0], encoder.hidden_states(ids, types)[0])
