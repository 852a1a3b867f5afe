"""Qwen 3, dense: the heads of Q and K are normed before they are rotated."""

from __future__ import annotations

from dataclasses import replace

from tenuto.checkpoint.config import ModelConfig
from tenuto.checkpoint.families import names
from tenuto.checkpoint.families.family import Family
from tenuto.checkpoint.families.qwen2 import upper_windows
from tenuto.checkpoint.families.settings import no_experts, require_silu
from tenuto.checkpoint.values import Values


def complete_hf(values: Values, config: ModelConfig) -> ModelConfig:
    require_silu(values)
    no_experts(values)
    bias = values.flag("attention_bias", False)
    return replace(upper_windows(values, config), qk_norm=True, qkv_bias=bias, output_bias=bias)


def complete_gguf(values: Values, config: ModelConfig) -> ModelConfig:
    values.only("attention.sliding_window", 0)
    return replace(config, qk_norm=True)


QWEN3 = Family(
    name="qwen3",
    gguf_architectures=("qwen3",),
    hf_model_types=("qwen3",),
    gguf_names=names.GGUF_NAMES | names.GGUF_QK_NORMS,
    hf_names=names.HF_NAMES | names.HF_QK_NORMS | names.biases(names.HF_NAMES, *names.ATTENTION),
    hf_ignored=names.HF_ROTARY_BUFFERS,
    hf_defaults={"head_dim": 128},
    complete_hf=complete_hf,
    complete_gguf=complete_gguf,
)
