"""Gemma 3, text: five windowed layers to each global one, four norms a layer, a scaled embedding.

A multimodal checkpoint (`gemma3`) is read for its text model alone; what sees is left out.
"""

from __future__ import annotations

from dataclasses import replace

from tenuto.checkpoint.config import LayerConfig, ModelConfig
from tenuto.checkpoint.families import names
from tenuto.checkpoint.families.family import Family
from tenuto.checkpoint.families.settings import gguf_window, hf_windows, with_windows
from tenuto.checkpoint.hf_rope import read_rope
from tenuto.checkpoint.rope import RopeConfig
from tenuto.checkpoint.values import Values

_PATTERN = 6  # every sixth layer is global
_LOCAL_THETA, _GLOBAL_THETA = 10_000.0, 1_000_000.0
_LAYERS_OF_27B = 62

_HF_NAMES = {
    **names.HF_NAMES,
    **names.HF_QK_NORMS,
    "model.layers.{i}.post_attention_layernorm.weight": "layers.{i}.attention_post_norm.weight",
    "model.layers.{i}.pre_feedforward_layernorm.weight": "layers.{i}.mlp_norm.weight",
    "model.layers.{i}.post_feedforward_layernorm.weight": "layers.{i}.mlp_post_norm.weight",
}

_GGUF_NAMES = {
    **names.GGUF_NAMES,
    **names.GGUF_QK_NORMS,
    "blk.{i}.post_attention_norm.weight": "layers.{i}.attention_post_norm.weight",
    "blk.{i}.post_ffw_norm.weight": "layers.{i}.mlp_post_norm.weight",
}


def _with_family_traits(config: ModelConfig) -> ModelConfig:
    return replace(
        config,
        activation="gelu_tanh",
        embedding_scale=config.hidden_size**0.5,
        qk_norm=True,
        post_norms=True,
    )


def _with_ropes(config: ModelConfig, whole: RopeConfig, local: RopeConfig) -> ModelConfig:
    """Table 0 turns the global layers, table 1 the windowed ones."""

    def turned(layer: LayerConfig) -> LayerConfig:
        return replace(layer, rope=0 if layer.window is None else 1)

    return replace(config, ropes=(whole, local), layers=tuple(map(turned, config.layers)))


def complete_hf(values: Values, config: ModelConfig) -> ModelConfig:
    values.only("hidden_act", "gelu_pytorch_tanh", "gelu")  # older configs name the act by the wrong word
    values.only("hidden_activation", "gelu_pytorch_tanh")
    pattern = max(1, values.integer("sliding_window_pattern", _PATTERN))
    config = hf_windows(values, config, lambda index: (index + 1) % pattern != 0)
    by_type = values.get("rope_parameters")
    if isinstance(by_type, dict) and by_type.keys() & {"full_attention", "sliding_attention"}:
        whole = read_rope(values, by_type.get("full_attention"), _GLOBAL_THETA)
        local = read_rope(values, by_type.get("sliding_attention"), _LOCAL_THETA)
    else:
        whole = read_rope(values, values.get("rope_scaling"), values.number("rope_theta", _GLOBAL_THETA))
        local = RopeConfig(theta=values.number("rope_local_base_freq", _LOCAL_THETA))
    bias = values.flag("attention_bias", False)
    config = replace(
        config,
        attention_scale=values.number("query_pre_attn_scalar", 256) ** -0.5,
        qkv_bias=bias,
        output_bias=bias,
        max_model_tokens=values.integer("max_position_embeddings", 131_072),
    )
    return _with_ropes(_with_family_traits(config), whole, local)


def complete_gguf(values: Values, config: ModelConfig) -> ModelConfig:
    window = gguf_window(values)
    config = with_windows(config, [window if flag else None for flag in _gguf_pattern(values, config.num_layers)])
    if config.num_layers == _LAYERS_OF_27B:  # the file does not say so; the size of the family's largest does
        config = replace(config, attention_scale=(config.hidden_size / config.num_heads) ** -0.5)
    local = RopeConfig(theta=values.number("rope.freq_base_swa", _LOCAL_THETA))
    whole = replace(config.ropes[0], theta=values.number("rope.freq_base", _GLOBAL_THETA))
    return _with_ropes(_with_family_traits(config), whole, local)


def _gguf_pattern(values: Values, num_layers: int) -> list[bool]:
    """Which layers have the window: a flag for each, or the number of layers from one global layer to the next."""
    key = "attention.sliding_window_pattern"
    if isinstance(values.get(key), list):
        flags = values.items(key)
        if len(flags) != num_layers or not all(isinstance(flag, bool) for flag in flags):
            values.refuse(f"{values.prefix}{key} has {len(flags)} entries; {num_layers} flags are expected")
        return [bool(flag) for flag in flags]
    pattern = max(1, values.integer(key, _PATTERN))
    return [(index + 1) % pattern != 0 for index in range(num_layers)]


GEMMA3 = Family(
    name="gemma3",
    gguf_architectures=("gemma3",),
    hf_model_types=("gemma3_text", "gemma3"),
    gguf_names=_GGUF_NAMES,
    hf_names=_HF_NAMES | names.biases(names.HF_NAMES, *names.ATTENTION),
    hf_ignored=names.HF_ROTARY_BUFFERS,
    hf_ignored_parts=(
        "vision_tower.",
        "multi_modal_projector.",
        "model.vision_tower.",
        "model.multi_modal_projector.",
    ),
    hf_prefixes={"language_model.": "", "model.language_model.": "model."},
    hf_defaults={
        "vocab_size": 262_208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 4096,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
    },
    hf_norm_offset=1.0,
    complete_hf=complete_hf,
    complete_gguf=complete_gguf,
)
