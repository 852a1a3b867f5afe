"""Qwen 3 with a mixture of experts in place of the MLP of most layers."""

from __future__ import annotations

from dataclasses import replace

from tenuto.checkpoint.config import ExpertsConfig, ModelConfig
from tenuto.checkpoint.families import names
from tenuto.checkpoint.families.family import Family
from tenuto.checkpoint.families.settings import hf_windows, require_silu
from tenuto.checkpoint.values import Values


def complete_hf(values: Values, config: ModelConfig) -> ModelConfig:
    require_silu(values)
    bias = values.flag("attention_bias", False)
    windowed = values.flag("use_sliding_window", False)
    config = hf_windows(values, config, lambda _: windowed)
    experts = ExpertsConfig(
        num_experts=values.integer("num_experts", values.integer("num_local_experts", 128)),
        num_active=values.integer("num_experts_per_tok", 8),
        intermediate_size=values.integer("moe_intermediate_size", 768),
        normalise=values.flag("norm_topk_prob", False),
    )
    dense = values.items("mlp_only_layers", [])
    step = max(1, values.integer("decoder_sparse_step", 1))
    layers = tuple(
        replace(layer, sparse=experts.num_experts > 0 and index not in dense and (index + 1) % step == 0)
        for index, layer in enumerate(config.layers)
    )
    return replace(config, layers=layers, experts=experts, qk_norm=True, qkv_bias=bias, output_bias=bias)


def complete_gguf(values: Values, config: ModelConfig) -> ModelConfig:
    values.only("attention.sliding_window", 0)
    values.only("expert_shared_count", 0)
    values.only("expert_gating_func", 1)  # softmax
    experts = ExpertsConfig(
        num_experts=values.integer("expert_count"),
        num_active=values.integer("expert_used_count"),
        intermediate_size=values.integer("expert_feed_forward_length"),
        normalise=values.flag("expert_weights_norm", True),
    )
    layers = tuple(replace(layer, sparse=True) for layer in config.layers)
    return replace(config, layers=layers, experts=experts, qk_norm=True)


QWEN3_MOE = Family(
    name="qwen3_moe",
    gguf_architectures=("qwen3moe",),
    hf_model_types=("qwen3_moe",),
    gguf_names=names.GGUF_NAMES
    | names.GGUF_QK_NORMS
    | {"blk.{i}.ffn_gate_inp.weight": "layers.{i}.mlp.router.weight"}
    | {
        f"blk.{{i}}.ffn_{part}_exps.weight": f"layers.{{i}}.mlp.experts.{part}.weight"
        for part in ("gate", "up", "down")
    },
    hf_names=names.HF_NAMES
    | names.HF_QK_NORMS
    | names.biases(names.HF_NAMES, *names.ATTENTION)
    | {"model.layers.{i}.mlp.gate.weight": "layers.{i}.mlp.router.weight"}
    | {
        f"model.layers.{{i}}.mlp.experts.{{j}}.{part}_proj.weight": f"layers.{{i}}.mlp.experts.{{j}}.{part}.weight"
        for part in ("gate", "up", "down")
    },
    hf_ignored=names.HF_ROTARY_BUFFERS,
    complete_hf=complete_hf,
    complete_gguf=complete_gguf,
    gguf_stacked_experts=True,
)
