"""B73: rotary tables of every scheme and spelling against `transformers`, near and far."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from family_models import LLAMA3_ROPE, YARN
from tenuto.checkpoint import open_checkpoint
from tenuto.device import ReferenceDevice
from tenuto.model.rotary import inverse_frequencies
from tiny_models import TinyLlama, write_hf

TINY = TinyLlama(head_dim=64, hidden_size=128, num_heads=2, num_kv_heads=1, max_model_tokens=16384)
FAR = torch.tensor([0, 10, 4095, 4096, 9000])
LLAMA3 = {key: value for key, value in LLAMA3_ROPE.items() if key != "rope_theta"} | {
    "original_max_position_embeddings": 8192
}
SCHEMES: dict[str, dict[str, Any]] = {
    "plain": {"rope_theta": 5e5},
    "rope_type": {"rope_theta": 5e5, "rope_scaling": LLAMA3},
    "type": {"rope_theta": 5e5, "rope_scaling": {("type" if k == "rope_type" else k): v for k, v in LLAMA3.items()}},
    "rope_parameters": {"rope_parameters": LLAMA3 | {"rope_theta": 5e5}, "rope_theta": None},
    "linear": {"rope_scaling": {"type": "linear", "factor": 2.5}},
    "yarn": {"rope_scaling": YARN},
    "yarn, all given": {
        "rope_scaling": YARN | {"beta_fast": 20.0, "beta_slow": 2.0, "attention_factor": 1.3, "truncate": False}
    },
}


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
def test_tables_match(tmp_path: Path, scheme: dict[str, Any]) -> None:
    config = open_checkpoint(write_hf(tmp_path, TINY, TINY.weights(), **scheme)).config
    table = ReferenceDevice().rotary_table(*inverse_frequencies(config.ropes[0], config.head_dim), 16384)
    angles = table.at(FAR)

    theirs = AutoConfig.from_pretrained(tmp_path)
    assert isinstance(theirs, LlamaConfig)
    cos, sin = LlamaRotaryEmbedding(theirs)(torch.zeros(1), FAR[None])
    torch.testing.assert_close(angles.cos[:, 0], cos[0, :, :32], atol=2e-6, rtol=0)
    torch.testing.assert_close(angles.sin[:, 0], sin[0, :, :32], atol=2e-6, rtol=0)


def test_the_context_of_stretched_models(tmp_path: Path) -> None:
    """YaRN and linear configs keep the unscaled length in `max_position_embeddings`; Llama 3's do not."""
    lengths = {}
    for name, scheme in (("yarn", YARN), ("linear", {"type": "linear", "factor": 2.0}), ("llama3", LLAMA3)):
        directory = write_hf(tmp_path / name, TINY, TINY.weights(), rope_scaling=scheme, max_position_embeddings=512)
        lengths[name] = open_checkpoint(directory).config.max_model_tokens
    assert lengths == {"yarn": 1024, "linear": 1024, "llama3": 512}
