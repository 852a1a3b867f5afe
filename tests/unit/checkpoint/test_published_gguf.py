"""Metadata of GGUF files as the ggml project's converter writes it for published models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tenuto.checkpoint import ModelConfig, RopeConfig
from tenuto.checkpoint.families import FAMILIES
from tenuto.checkpoint.gguf_config import read_config
from tenuto.checkpoint.rope import DividedFrequencies, LinearScaling, YarnScaling
from tenuto.checkpoint.weight_file import StoredTensor, WeightFile
from tenuto.errors import ModelFileError, UnsupportedModel


def metadata(arch: str, sizes: tuple[int, int, int, int, int], context: int, **more: Any) -> dict[str, Any]:
    """Args:
    sizes: hidden, intermediate, layers, heads, KV heads.
    more: keys after the architecture, `__` for a dot.
    """
    hidden, inner, layers, heads, kv_heads = sizes
    keys = {
        "context_length": context,
        "embedding_length": hidden,
        "block_count": layers,
        "feed_forward_length": inner,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "attention.layer_norm_rms_epsilon": 1e-6,
        **{key.replace("__", "."): value for key, value in more.items()},
    }
    return {
        "general.architecture": arch,
        "general.type": "model",
        "general.file_type": 15,
        "general.quantization_version": 2,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.padding_token_id": 3,
        **{f"{arch}.{key}": value for key, value in keys.items()},
    }


def gemma(sizes: tuple[int, int, int, int, int], head: int, window: int, **more: Any) -> dict[str, Any]:
    heads = {"attention__key_length": head, "attention__value_length": head, "attention__sliding_window": window}
    return metadata("gemma3", sizes, 131072, rope__freq_base=1e6, **heads, **more)


HEADS_128 = {"attention__key_length": 128, "attention__value_length": 128}
LINEAR = {"rope__scaling__type": "linear", "rope__scaling__factor": 8.0}
PUBLISHED = {
    "Llama 3.1 8B": metadata(
        "llama",
        (4096, 14336, 32, 32, 8),
        131072,
        rope__dimension_count=128,
        rope__freq_base=500000.0,
        vocab_size=128256,
    ),
    "Mistral 7B": metadata("llama", (4096, 14336, 32, 32, 8), 32768, rope__dimension_count=128, vocab_size=32000),
    "Mistral Nemo": metadata(
        "llama", (5120, 14336, 40, 32, 8), 1024000, rope__dimension_count=128, rope__freq_base=1e6, **HEADS_128
    ),
    "every layer named": metadata("llama", (4096, [14336] * 32, 32, [32] * 32, [8] * 32), 8192),  # type: ignore[arg-type]
    "Qwen2.5 7B": metadata("qwen2", (3584, 18944, 28, 28, 4), 32768, rope__freq_base=1e6),
    "Qwen2.5 7B, long": metadata(
        "qwen2",
        (3584, 18944, 28, 28, 4),
        131072,
        rope__scaling__type="yarn",
        rope__scaling__factor=4.0,
        rope__scaling__original_context_length=32768,
    ),
    "Qwen3 0.6B": metadata("qwen3", (1024, 3072, 28, 16, 8), 40960, rope__freq_base=1e6, **HEADS_128),
    "Qwen3 30B A3B": metadata(
        "qwen3moe",
        (2048, 6144, 48, 32, 4),
        40960,
        rope__freq_base=1e6,
        expert_count=128,
        expert_used_count=8,
        expert_feed_forward_length=768,
        **HEADS_128,
    ),
    "SmolLM3 3B": metadata("smollm3", (2048, 11008, 36, 16, 4), 65536, rope__freq_base=5e6, rope__dimension_count=128),
    "Gemma 3 1B": gemma((1152, 6912, 26, 4, 1), 256, 512),
    "Gemma 3 4B": gemma((2560, 10240, 34, 8, 4), 256, 1024, **LINEAR),
    "Gemma 3 27B": gemma((5376, 21504, 62, 32, 16), 128, 1024, **LINEAR),
}


def read(values: dict[str, Any], rope_divisors: tuple[float, ...] | None = None) -> ModelConfig:
    (family,) = (f for f in FAMILIES if values["general.architecture"] in f.gguf_architectures)
    hidden = values[f"{values['general.architecture']}.embedding_length"]
    embedding = StoredTensor(WeightFile(Path(__file__)), "token_embd.weight", (1000, hidden), "F32", 0, 4000 * hidden)
    return read_config(Path("m.gguf"), family, values, {"embed.weight": embedding}, rope_divisors)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_file(name: str) -> None:
    config = read(PUBLISHED[name])
    arch = PUBLISHED[name]["general.architecture"]
    assert config.head_dim == (256 if name in ("Gemma 3 1B", "Gemma 3 4B") else 128)
    assert config.vocab_size == 1000 and config.tie_embeddings
    assert config.max_model_tokens == PUBLISHED[name][f"{arch}.context_length"]
    assert (config.bos_id, config.eos_ids) == (1, (2,))
    assert config.qk_norm == (arch in ("qwen3", "qwen3moe", "gemma3")) and config.qkv_bias == (arch == "qwen2")


def test_rotary_tables() -> None:
    assert read(PUBLISHED["Mistral 7B"]).ropes == (RopeConfig(theta=10000.0),)
    divided = read(PUBLISHED["Llama 3.1 8B"], (1.0,) * 60 + (8.0,) * 4).ropes
    assert divided == (RopeConfig(theta=500000.0, scaling=DividedFrequencies(divisors=(1.0,) * 60 + (8.0,) * 4)),)
    yarn = YarnScaling(factor=4.0, original_tokens=32768)
    assert read(PUBLISHED["Qwen2.5 7B, long"]).ropes == (RopeConfig(theta=10000.0, scaling=yarn),)
    local = RopeConfig(theta=10000.0)
    assert read(PUBLISHED["Gemma 3 1B"]).ropes == (RopeConfig(theta=1e6), local)
    linear = RopeConfig(theta=1e6, scaling=LinearScaling(factor=8.0))
    assert read(PUBLISHED["Gemma 3 27B"]).ropes == (linear, local)


def test_layers() -> None:
    positions = [layer.rope for layer in read(PUBLISHED["SmolLM3 3B"]).layers]
    assert positions == [0, 0, 0, None] * 9
    windows = [layer.window for layer in read(PUBLISHED["Gemma 3 1B"]).layers]
    assert windows == ([512] * 5 + [None]) * 4 + [512] * 2
    experts = read(PUBLISHED["Qwen3 30B A3B"]).experts
    assert experts is not None
    assert (experts.num_experts, experts.num_active, experts.intermediate_size) == (128, 8, 768)
    assert experts.normalise
    assert read(PUBLISHED["every layer named"]) == read(metadata("llama", (4096, 14336, 32, 32, 8), 8192))
    assert read(PUBLISHED["Gemma 3 27B"]).attention_scale == pytest.approx(168**-0.5)
    assert read(PUBLISHED["Gemma 3 4B"]).attention_scale is None, "that of its heads"


@pytest.mark.parametrize(
    ("pattern", "windows"),
    [
        (3, [512, 512, None] * 8 + [512, 512]),
        (1, [None] * 26),
        (0, [None] * 26),
        ([True, False] * 13, [512, None] * 13),
    ],
)
def test_which_layers_have_the_window(pattern: object, windows: list[int | None]) -> None:
    values = PUBLISHED["Gemma 3 1B"] | {"gemma3.attention.sliding_window_pattern": pattern}
    assert [layer.window for layer in read(values).layers] == windows


@pytest.mark.parametrize("pattern", [[True] * 25, [], [1, 0] * 13, ["x"] * 26])
def test_patterns_that_do_not_fit_are_refused(pattern: object) -> None:
    with pytest.raises(UnsupportedModel, match=r"sliding_window_pattern .* 26 flags"):
        read(PUBLISHED["Gemma 3 1B"] | {"gemma3.attention.sliding_window_pattern": pattern})


@pytest.mark.parametrize("heads", [[8, 4] * 16, [], [8.0] * 32, [True] * 32, ["8"]])
def test_layers_that_differ_are_refused(heads: object) -> None:
    with pytest.raises(ModelFileError, match="head_count_kv differs by layer"):
        read(PUBLISHED["Llama 3.1 8B"] | {"llama.attention.head_count_kv": heads})
