"""Mistral: Llama's shape with, in the first version, a sliding window in every layer.

GGUF files of Mistral models call themselves `llama`, which the Llama family reads.
"""

from __future__ import annotations

from tenuto.checkpoint.config import ModelConfig
from tenuto.checkpoint.families import names
from tenuto.checkpoint.families.family import Family
from tenuto.checkpoint.families.settings import gguf_window, hf_windows, no_experts, require_silu, with_windows
from tenuto.checkpoint.values import Values


def complete_hf(values: Values, config: ModelConfig) -> ModelConfig:
    require_silu(values)
    no_experts(values)
    windowed = values.has("sliding_window")
    return hf_windows(values, config, lambda _: windowed)


def complete_gguf(values: Values, config: ModelConfig) -> ModelConfig:
    return with_windows(config, [gguf_window(values)] * config.num_layers)


MISTRAL = Family(
    name="mistral",
    gguf_architectures=("mistral",),
    hf_model_types=("mistral",),
    gguf_names=names.GGUF_NAMES,
    hf_names=names.HF_NAMES,
    hf_ignored=names.HF_ROTARY_BUFFERS,
    complete_hf=complete_hf,
    complete_gguf=complete_gguf,
    gguf_interleaved_rope=True,
)
