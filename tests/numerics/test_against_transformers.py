"""The decoder against `transformers`, in fp32, from both file formats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ragged_batches import Query, ragged
from tenuto.checkpoint import open_checkpoint
from tenuto.device import ReferenceDevice
from tenuto.model import Decoder, load_model
from tiny_models import Arrays, TinyLlama, write_gguf, write_hf, write_sharded

SHAPES = {
    "gqa": TinyLlama(),
    "gqa tied": TinyLlama(tied=True),
    "three of nine": TinyLlama(num_heads=9, num_kv_heads=3, hidden_size=144),
    "one kv head": TinyLlama(num_kv_heads=1),
    "no gqa": TinyLlama(num_kv_heads=4, tied=True),
    "odd sizes": TinyLlama(head_dim=10, hidden_size=36, intermediate_size=52, vocab_size=71, rope_theta=5e5),
}


def oracle(tiny: TinyLlama, weights: Arrays) -> LlamaForCausalLM:
    model = LlamaForCausalLM(LlamaConfig(**tiny.hf_config())).eval()
    state = {name: torch.from_numpy(values) for name, values in weights.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}
    model.tie_weights()
    return model


def logits_of(model: LlamaForCausalLM, ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return model(torch.tensor([ids])).logits[0].float()


def all_logits(decoder: Decoder, ids: list[int]) -> torch.Tensor:
    blocks = -(-len(ids) // 16)
    table = [blocks - i for i in range(blocks)]  # out of order on purpose
    return decoder.forward(ragged([Query(ids, 0, table)], all_logits=True), decoder.allocate_kv(blocks + 1))


def some_ids(count: int, vocab_size: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, vocab_size, count).tolist()


@pytest.mark.parametrize("tiny", SHAPES.values(), ids=SHAPES)
def test_logits_from_a_directory_match(tmp_path: Path, tiny: TinyLlama) -> None:
    weights = tiny.weights()
    decoder = load_model(open_checkpoint(write_hf(tmp_path, tiny, weights)), ReferenceDevice())
    model = LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    for count in (1, 17, 300):
        ids = some_ids(count, tiny.vocab_size)
        torch.testing.assert_close(all_logits(decoder, ids), logits_of(model, ids), atol=1e-4, rtol=0)


def test_logits_from_shards_match_those_from_one_file(tmp_path: Path) -> None:
    tiny = TinyLlama()
    whole = load_model(open_checkpoint(write_hf(tmp_path / "whole", tiny, tiny.weights())), ReferenceDevice())
    parts = load_model(open_checkpoint(write_sharded(tmp_path / "parts", tiny, tiny.weights())), ReferenceDevice())
    ids = some_ids(40, tiny.vocab_size)
    assert torch.equal(all_logits(whole, ids), all_logits(parts, ids))


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0"])
@pytest.mark.parametrize("tied", [False, True])
def test_logits_from_gguf_match_its_exact_values(tmp_path: Path, kind: str, tied: bool) -> None:
    """B70: the rotary row order is undone in every tensor type, K by its own number of heads."""
    tiny = TinyLlama(num_heads=4, num_kv_heads=2, tied=tied)
    exact = write_gguf(tmp_path / "tiny.gguf", tiny, tiny.weights(), kind)
    decoder = load_model(open_checkpoint(tmp_path / "tiny.gguf"), ReferenceDevice())
    ids = some_ids(60, tiny.vocab_size)
    torch.testing.assert_close(all_logits(decoder, ids), logits_of(oracle(tiny, exact), ids), atol=1e-4, rtol=0)


def test_a_stored_head_is_used_even_if_the_flag_says_tied(tmp_path: Path) -> None:
    """B71, the stated rule."""
    tiny = TinyLlama()
    weights = tiny.weights()
    decoder = load_model(
        open_checkpoint(write_hf(tmp_path, tiny, weights, tie_word_embeddings=True)), ReferenceDevice()
    )
    ids = some_ids(20, tiny.vocab_size)
    torch.testing.assert_close(all_logits(decoder, ids), logits_of(oracle(tiny, weights), ids), atol=1e-4, rtol=0)


def test_bf16_stays_near_fp32(tmp_path: Path) -> None:
    tiny = TinyLlama()
    checkpoint = open_checkpoint(write_hf(tmp_path, tiny, tiny.weights()))
    ids = some_ids(60, tiny.vocab_size)
    wide, narrow = (all_logits(load_model(checkpoint, ReferenceDevice(p)), ids) for p in ("fp32", "bf16"))
    error = (wide.log_softmax(-1).exp() * (wide.log_softmax(-1) - narrow.log_softmax(-1))).sum(-1)
    assert 0 < error.mean() < 0.01


def test_a_model_saved_without_its_first_name_is_the_same(tmp_path: Path) -> None:
    """As embedding models are, from the bare decoder."""
    tiny = TinyLlama(tied=True)
    weights = tiny.weights()
    bare = {name.removeprefix("model."): values for name, values in weights.items()}
    whole = load_model(open_checkpoint(write_hf(tmp_path / "whole", tiny, weights)), ReferenceDevice())
    other = load_model(open_checkpoint(write_hf(tmp_path / "bare", tiny, bare)), ReferenceDevice())
    ids = some_ids(20, tiny.vocab_size)
    assert torch.equal(all_logits(whole, ids), all_logits(other, ids))
