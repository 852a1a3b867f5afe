"""Llama 2 and 3, SmolLM2, and the many models of that shape."""

from __future__ import annotations

from dataclasses import replace

from tenuto.checkpoint.config import ModelConfig
from tenuto.checkpoint.families import names
from tenuto.checkpoint.families.family import Family
from tenuto.checkpoint.families.settings import no_experts, no_hf_windows, require_silu
from tenuto.checkpoint.values import Values


def complete_hf(values: Values, config: ModelConfig) -> ModelConfig:
    require_silu(values)
    no_experts(values)
    no_hf_windows(values)
    bias = values.flag("attention_bias", False)
    return replace(config, qkv_bias=bias, output_bias=bias, mlp_bias=values.flag("mlp_bias", False))


def complete_gguf(values: Values, config: ModelConfig) -> ModelConfig:
    values.only("attention.sliding_window", 0)
    return config


LLAMA = Family(
    name="llama",
    gguf_architectures=("llama",),
    hf_model_types=("llama",),
    gguf_names=names.GGUF_NAMES | names.biases(names.GGUF_NAMES, *names.ATTENTION, *names.MLP),
    hf_names=names.HF_NAMES | names.biases(names.HF_NAMES, *names.ATTENTION, *names.MLP),
    hf_ignored=names.HF_ROTARY_BUFFERS,
    complete_hf=complete_hf,
    complete_gguf=complete_gguf,
    gguf_interleaved_rope=True,
)
