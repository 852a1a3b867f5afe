"""Every family, in fp32, against `transformers`: each feature exercised by a tiny random model, from both formats."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from transformers import PreTrainedModel

from family_models import FAMILY_MODELS, VOCAB, make, save, save_gguf
from ragged_batches import Query, ragged
from tenuto.checkpoint import open_checkpoint
from tenuto.device import ReferenceDevice
from tenuto.model import Decoder, load_model

LENGTHS = (1, 7, 19, 20, 21, 24, 25, 330)  # around the windows, and over more than one split of the attention
IDS = torch.randint(3, VOCAB, (LENGTHS[-1],), generator=torch.Generator().manual_seed(1)).tolist()
TABLE = list(range(30, 0, -1))


def check(decoder: Decoder, made: PreTrainedModel) -> None:
    """Whole prompts of every length, and one token after another from the pool."""
    kv = decoder.allocate_kv(40)
    with torch.inference_mode():
        expected = made(torch.tensor([IDS])).logits[0]
    for count in LENGTHS:
        got = decoder.forward(ragged([Query(IDS[:count], 0, TABLE)], all_logits=True), kv)
        torch.testing.assert_close(got, expected[:count], atol=1e-4, rtol=0)
    for at in range(16, 30):
        decoder.forward(ragged([Query(IDS[:at], 0, TABLE)]), kv)
        got = decoder.forward(ragged([Query(IDS[at : at + 1], at, TABLE)]), kv)
        torch.testing.assert_close(got[0], expected[at], atol=1e-4, rtol=0)


@cache
def reference(name: str) -> PreTrainedModel:
    return make(FAMILY_MODELS[name])


@pytest.mark.parametrize("name", FAMILY_MODELS)
def test_a_directory(name: str, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(save(reference(name), tmp_path))
    check(load_model(checkpoint, ReferenceDevice()), reference(name))


@pytest.mark.parametrize("name", [name for name, model in FAMILY_MODELS.items() if model.arch])
def test_a_gguf_file(name: str, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(save_gguf(FAMILY_MODELS[name], reference(name), tmp_path / "tiny.gguf"))
    check(load_model(checkpoint, ReferenceDevice()), reference(name))


def test_the_text_model_of_a_multimodal_checkpoint(tmp_path: Path) -> None:
    """Wrapped settings, which leave most out, and names with a prefix; what sees is left aside."""
    save(reference("gemma3"), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": config}))
    weights = load_file(tmp_path / "model.safetensors")
    renamed = {f"language_model.{name}": values for name, values in weights.items()}
    renamed["vision_tower.vision_model.post_layernorm.weight"] = np.ones(8, np.float32)
    save_file(renamed, tmp_path / "model.safetensors")
    check(load_model(open_checkpoint(tmp_path), ReferenceDevice()), reference("gemma3"))
