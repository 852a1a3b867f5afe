"""SmolLM 3: Llama's shape, but every fourth layer has no positions ("NoPE")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tenuto.checkpoint.config import ModelConfig
from tenuto.checkpoint.families import names
from tenuto.checkpoint.families.family import Family
from tenuto.checkpoint.families.settings import hf_windows, no_experts, require_silu
from tenuto.checkpoint.values import Values

_INTERVAL = 4


def _with_positions(config: ModelConfig, flags: Sequence[bool]) -> ModelConfig:
    layers = tuple(replace(layer, rope=0 if flag else None) for layer, flag in zip(config.layers, flags, strict=False))
    return replace(config, layers=layers)


def complete_hf(values: Values, config: ModelConfig) -> ModelConfig:
    require_silu(values)
    no_experts(values)
    interval = max(1, values.integer("no_rope_layer_interval", _INTERVAL))
    by_interval = [int((index + 1) % interval != 0) for index in range(config.num_layers)]
    flags = [bool(flag) for flag in values.items("no_rope_layers", by_interval)]  # 1 says: with positions
    if len(flags) < config.num_layers:
        values.refuse(f"no_rope_layers names {len(flags)} layers of {config.num_layers}")
        return config
    windowed = values.flag("use_sliding_window", False) and values.has("sliding_window")
    config = hf_windows(values, config, lambda index: windowed and not flags[index])
    bias = values.flag("attention_bias", False)
    config = replace(config, qkv_bias=bias, output_bias=bias, mlp_bias=values.flag("mlp_bias", False))
    return _with_positions(config, flags)


def complete_gguf(values: Values, config: ModelConfig) -> ModelConfig:
    values.only("attention.sliding_window", 0)
    return _with_positions(config, [(index + 1) % _INTERVAL != 0 for index in range(config.num_layers)])


SMOLLM3 = Family(
    name="smollm3",
    gguf_architectures=("smollm3",),
    hf_model_types=("smollm3",),
    gguf_names=names.GGUF_NAMES,
    hf_names=names.HF_NAMES | names.biases(names.HF_NAMES, *names.ATTENTION, *names.MLP),
    hf_ignored=names.HF_ROTARY_BUFFERS,
    hf_defaults={"rope_theta": 2_000_000.0},
    complete_hf=complete_hf,
    complete_gguf=complete_gguf,
    gguf_interleaved_rope=True,
)
