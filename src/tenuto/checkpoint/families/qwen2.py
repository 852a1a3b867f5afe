"""Qwen 2 and 2.5: biases on Q, K and V, and windows in the upper layers where a config asks for them."""

from __future__ import annotations

from dataclasses import replace

from tenuto.checkpoint.config import ModelConfig
from tenuto.checkpoint.families import names
from tenuto.checkpoint.families.family import Family
from tenuto.checkpoint.families.settings import hf_windows, no_experts, require_silu
from tenuto.checkpoint.values import Values


def upper_windows(values: Values, config: ModelConfig) -> ModelConfig:
    """Windows from layer `max_window_layers` on, if `use_sliding_window` says so."""
    if not values.flag("use_sliding_window", False):
        return hf_windows(values, config, lambda _: False)
    first = values.integer("max_window_layers", 28)
    return hf_windows(values, config, lambda index: index >= first)


def complete_hf(values: Values, config: ModelConfig) -> ModelConfig:
    require_silu(values)
    no_experts(values)
    return replace(upper_windows(values, config), qkv_bias=True)


def complete_gguf(values: Values, config: ModelConfig) -> ModelConfig:
    values.only("attention.sliding_window", 0)
    return replace(config, qkv_bias=True)


QWEN2 = Family(
    name="qwen2",
    gguf_architectures=("qwen2",),
    hf_model_types=("qwen2",),
    gguf_names=names.GGUF_NAMES | names.biases(names.GGUF_NAMES, *names.QKV),
    hf_names=names.HF_NAMES | names.biases(names.HF_NAMES, *names.QKV),
    hf_ignored=names.HF_ROTARY_BUFFERS,
    complete_hf=complete_hf,
    complete_gguf=complete_gguf,
)
