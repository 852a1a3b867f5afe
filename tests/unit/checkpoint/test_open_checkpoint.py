"""What both formats say about a model comes out in one form; what we cannot do is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tenuto.checkpoint import RopeConfig, open_checkpoint
from tenuto.errors import ModelFileError, UnsupportedModel
from tiny_models import TinyLlama, write_gguf, write_hf

TINY = TinyLlama()


def test_both_formats_give_the_same_model(tmp_path: Path) -> None:
    weights = TINY.weights()
    write_gguf(tmp_path / "tiny.gguf", TINY, weights)
    one, other = open_checkpoint(tmp_path / "tiny.gguf"), open_checkpoint(write_hf(tmp_path / "tiny", TINY, weights))
    assert one.name == other.name == "tiny"
    assert set(one.tensor_names()) == set(other.tensor_names())
    for name in one.tensor_names():
        assert one.shape(name) == other.shape(name) == one.read(name).shape
        np.testing.assert_array_equal(one.read(name), other.read(name))
    eps = pytest.approx(1e-5)
    assert (one.config.rms_norm_eps, other.config.rms_norm_eps) == (eps, eps)
    assert one.config.eos_ids == other.config.eos_ids == (2,)
    assert one.config.bos_id == other.config.bos_id == 1
    fields = ("vocab_size", "hidden_size", "num_heads", "num_kv_heads", "head_dim", "max_model_tokens")
    assert all(getattr(one.config, f) == getattr(other.config, f) == getattr(TINY, f) for f in fields)
    assert not one.config.tie_embeddings and not other.config.tie_embeddings


def test_qk_rows_are_put_in_order_per_head(tmp_path: Path) -> None:
    """B70: layer by layer, Q by the query heads and K by the KV heads."""
    tiny = TinyLlama(num_heads=8, num_kv_heads=2, head_dim=8)
    for kind in ("F16", "Q8_0", "Q4_1"):
        exact = write_gguf(tmp_path / f"{kind}.gguf", tiny, tiny.weights(), kind)
        checkpoint = open_checkpoint(tmp_path / f"{kind}.gguf")
        for part in "qkv":
            stored = exact[f"model.layers.1.self_attn.{part}_proj.weight"]
            np.testing.assert_array_equal(checkpoint.read(f"layers.1.attention.{part}.weight"), stored)


def test_absent_head_is_tied(tmp_path: Path) -> None:
    """B71."""
    tied = TinyLlama(tied=True)
    write_gguf(tmp_path / "tied.gguf", tied, tied.weights())
    assert open_checkpoint(tmp_path / "tied.gguf").config.tie_embeddings
    assert open_checkpoint(write_hf(tmp_path / "hf", tied, tied.weights())).config.tie_embeddings
    assert open_checkpoint(write_hf(tmp_path / "null", tied, tied.weights(), tie_word_embeddings=None)).config


def test_promised_head_that_is_absent(tmp_path: Path) -> None:
    tied = TinyLlama(tied=True)
    with pytest.raises(ModelFileError, match="tie_word_embeddings is false"):
        open_checkpoint(write_hf(tmp_path, tied, tied.weights(), tie_word_embeddings=False))


@pytest.mark.parametrize(
    ("named", "config"),
    [
        ("longrope", {"rope_scaling": {"rope_type": "longrope", "factor": 8.0}}),
        ("dynamic", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}),
        ("'linear' / 'yarn'", {"rope_scaling": {"rope_type": "linear", "type": "yarn", "factor": 2.0}}),
        ("mscale", {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, "mscale": 0.7}}),
        ("low_freq_factor", {"rope_scaling": {"rope_type": "linear", "factor": 2.0, "low_freq_factor": 1.0}}),
        ("partial_rotary_factor", {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}),
        ("sliding_window", {"sliding_window": 4096}),
        ("layer_types", {"layer_types": ["full_attention", "sliding_attention"]}),
        ("hidden_act", {"hidden_act": "gelu"}),
        ("quant_method = 'fp8'", {"quantization_config": {"quant_method": "fp8"}}),
        ("partial_rotary_factor", {"partial_rotary_factor": 0.5}),
        ("model_type", {"model_type": "qwen9"}),
    ],
)
def test_unsupported_config_keys_are_named(tmp_path: Path, named: str, config: dict[str, Any]) -> None:
    """B73: an unknown scheme is refused, in every spelling, never taken for plain RoPE."""
    with pytest.raises(UnsupportedModel, match=named):
        open_checkpoint(write_hf(tmp_path, TINY, TINY.weights(), **config))


@pytest.mark.parametrize("family", ["llama", "qwen3_moe", "gemma3_text", "smollm3"])
def test_an_absurd_number_of_layers_costs_nothing(tmp_path: Path, family: str) -> None:
    with pytest.raises(ModelFileError, match="1000000000000 layers"):
        open_checkpoint(write_hf(tmp_path, TINY, TINY.weights(), model_type=family, num_hidden_layers=10**12))


def test_everything_that_is_refused_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        open_checkpoint(write_hf(tmp_path, TINY, TINY.weights(), hidden_act="relu", final_logit_softcapping=30.0))
    assert len(caught.value.problems) == 2
    assert all(name in str(caught.value) for name in ("hidden_act", "final_logit_softcapping"))


@pytest.mark.parametrize(
    "config",
    [
        {"rope_scaling": None, "sliding_window": None},
        {"sliding_window": 4096, "use_sliding_window": False},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "rope_theta": None},
        {"layer_types": ["full_attention", "full_attention"]},
    ],
)
def test_keys_that_change_nothing_are_accepted(tmp_path: Path, config: dict[str, Any]) -> None:
    assert open_checkpoint(write_hf(tmp_path, TINY, TINY.weights(), **config)).config.ropes == (RopeConfig(theta=1e4),)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.rope.scaling.type", "longrope"),
        ("llama.attention.causal", False),
        ("llama.attention.sliding_window", 512),
        ("llama.expert_count", 8),
    ],
)
def test_unsupported_gguf_keys_are_named(tmp_path: Path, key: str, value: Any) -> None:
    write_gguf(tmp_path / "m.gguf", TINY, TINY.weights(), extra={key: value})
    with pytest.raises(UnsupportedModel, match=key):
        open_checkpoint(tmp_path / "m.gguf")


def test_rope_freqs_tensor_is_refused(tmp_path: Path) -> None:
    """B73: llama 3 keeps its scaling factors in a tensor."""
    path = tmp_path / "m.gguf"
    write_gguf(path, TINY, TINY.weights())
    path.write_bytes(path.read_bytes().replace(b"output_norm.weight", b"rope_freqs.weightx"))
    with pytest.raises(UnsupportedModel, match="rope_freqs"):
        open_checkpoint(path)


def test_end_ids_are_the_union_of_all_files(tmp_path: Path) -> None:
    model = write_hf(tmp_path, TINY, TINY.weights(), eos_token_id=[2])
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 7]}))
    (model / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": {"content": "<|结束|>"}, "bos_token": "<s>", "chat_template": "{{ 一 }}"}),
        encoding="utf-8",
    )
    checkpoint = open_checkpoint(model)
    assert checkpoint.config.eos_ids == checkpoint.tokenizer.eos_ids == (2, 3, 7)
    assert checkpoint.tokenizer.chat_template == "{{ 一 }}"
    assert checkpoint.tokenizer.json_path == model / "tokenizer.json" and checkpoint.tokenizer.gguf is None
    (model / "chat_template.jinja").write_text("{{ 二 }}", encoding="utf-8")
    assert open_checkpoint(model).tokenizer.chat_template == "{{ 二 }}"


@pytest.mark.parametrize("ids", [{"eos_token_id": 64}, {"eos_token_id": [2, -1]}, {"bos_token_id": 1000}])
def test_special_ids_are_range_checked(tmp_path: Path, ids: dict[str, Any]) -> None:
    with pytest.raises(ModelFileError, match="outside the vocabulary"):
        open_checkpoint(write_hf(tmp_path, TINY, TINY.weights(), **ids))


def test_gguf_tokenizer_is_handed_on_whole(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", TINY, TINY.weights(), extra={"tokenizer.chat_template": "{{ 天气 }}"})
    tokenizer = open_checkpoint(tmp_path / "m.gguf").tokenizer
    assert tokenizer.gguf is not None and tokenizer.json_path is None
    assert (tokenizer.gguf.kind, tokenizer.gguf.pre) == ("gpt2", "smollm")
    assert tokenizer.gguf.tokens[3] == "天" and tokenizer.gguf.token_types[:4] == [2, 3, 3, 1]
    assert tokenizer.gguf.merges == ["t 1", "t 2"]
    assert tokenizer.chat_template == "{{ 天气 }}" and not tokenizer.add_bos


def test_fingerprint_tells_models_apart(tmp_path: Path) -> None:
    prints = set()
    for seed in (0, 0, 1):
        for kind in ("F16", "Q8_0"):
            write_gguf(tmp_path / "m.gguf", TINY, TINY.weights(seed), kind)
            prints.add(open_checkpoint(tmp_path / "m.gguf").fingerprint)
        prints.add(open_checkpoint(write_hf(tmp_path / "hf", TINY, TINY.weights(seed))).fingerprint)
    assert len(prints) == 6
