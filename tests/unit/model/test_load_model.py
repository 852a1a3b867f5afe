"""Every expected tensor is there, has its shape and is used once; anything else is an error that names it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from ragged_batches import Query, ragged
from tenuto.checkpoint import open_checkpoint
from tenuto.device import ReferenceDevice
from tenuto.errors import ModelFileError
from tenuto.model import Decoder, load_model
from tiny_models import TinyLlama, write_hf

TINY = TinyLlama()


def load(path: Path) -> Decoder:
    return load_model(open_checkpoint(path), ReferenceDevice())


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    weights = TINY.weights()
    del weights["model.layers.1.self_attn.k_proj.weight"]
    with pytest.raises(ModelFileError, match=r"1 tensors are missing: layers.1.attention.k.weight"):
        load(write_hf(tmp_path, TINY, weights))


def test_a_tensor_of_a_layer_too_many_is_named(tmp_path: Path) -> None:
    weights = TinyLlama(num_layers=3).weights()
    with pytest.raises(ModelFileError, match=r"9 tensors do not belong to the model: layers.2.attention.k.weight"):
        load(write_hf(tmp_path, TINY, weights))


def test_a_tensor_of_no_known_role_is_named(tmp_path: Path) -> None:
    weights = TINY.weights() | {"model.layers.0.self_attn.q_proj.twin": np.zeros(64, np.float32)}
    with pytest.raises(ModelFileError, match=r"q_proj\.twin"):
        load(write_hf(tmp_path, TINY, weights))


def test_a_wrong_shape_is_named(tmp_path: Path) -> None:
    weights = TINY.weights()
    weights["model.layers.0.mlp.down_proj.weight"] = weights["model.layers.0.mlp.down_proj.weight"].T.copy()
    with pytest.raises(ModelFileError, match=r"layers.0.mlp.down.weight has shape \[96, 64\].*\[64, 96\]"):
        load(write_hf(tmp_path, TINY, weights))


def test_old_rotary_buffers_are_ignored(tmp_path: Path) -> None:
    weights = TINY.weights() | {"model.layers.0.self_attn.rotary_emb.inv_freq": np.zeros(8, np.float32)}
    assert load(write_hf(tmp_path, TINY, weights)).config.num_layers == 2


def test_logits_only_where_asked(tmp_path: Path) -> None:
    decoder = load(write_hf(tmp_path, TINY, TINY.weights()))
    kv = decoder.allocate_kv(4)
    every = decoder.forward(ragged([Query([5, 6, 7], 0, [2])], all_logits=True), kv)
    last = decoder.forward(ragged([Query([5, 6, 7], 0, [2])]), kv)
    assert every.shape == (3, 64) and last.shape == (1, 64) and last.dtype == torch.float32
    assert torch.equal(every[2:], last)


def test_no_logits_still_write_kv(tmp_path: Path) -> None:
    decoder = load(write_hf(tmp_path, TINY, TINY.weights()))
    kv = decoder.allocate_kv(4)
    batch = ragged([Query([5, 6, 7], 0, [2])])
    silent = type(batch)(**{**vars(batch), "logit_rows": torch.tensor([], dtype=torch.int64)})
    assert decoder.forward(silent, kv).shape == (0, 64)
    held = decoder.forward(ragged([Query([8], 3, [2])]), kv)
    cold = decoder.forward(ragged([Query([5, 6, 7, 8], 0, [1])]), decoder.allocate_kv(4))
    torch.testing.assert_close(held, cold, atol=1e-5, rtol=0)


def test_kv_size_is_what_is_allocated(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_hf(tmp_path, TINY, TINY.weights()))
    for precision, item_bytes in (("fp32", 4), ("bf16", 2)):
        decoder = load_model(checkpoint, ReferenceDevice(precision, block_size=8))
        assert decoder.kv_bytes_per_token() == 2 * 2 * 2 * 16 * item_bytes
        assert decoder.allocate_kv(10).num_bytes == 10 * 8 * decoder.kv_bytes_per_token()
