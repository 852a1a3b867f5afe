"""The settings of models as they are published: each key spelled as there, each model read as it was made.

Sizes and spellings follow the public config.json files; what transformers makes of the same settings is the reference
for everything it says too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from tenuto.checkpoint import ModelConfig
from tenuto.checkpoint.families import FAMILIES
from tenuto.checkpoint.hf_config import read_config
from tenuto.errors import UnsupportedModel
from tenuto.model.rotary import inverse_frequencies


def settings(model_type: str, sizes: tuple[int, int, int, int, int, int], **more: Any) -> dict[str, Any]:
    """Args:
    sizes: hidden, intermediate, layers, heads, KV heads, vocabulary.
    """
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    named = dict(zip((*names, "vocab_size"), sizes, strict=True))
    return {"model_type": model_type, "hidden_act": "silu", "rms_norm_eps": 1e-6, **named, **more}


LLAMA3_ROPE = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}
QWEN_UNUSED_WINDOW = {"use_sliding_window": False, "sliding_window": 131072, "max_window_layers": 28}
GEMMA_4B: dict[str, Any] = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "eos_token_id": [1, 106],
    "model_type": "gemma3",
    "text_config": {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    },
    "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27, "model_type": "siglip_vision_model"},
}
GEMMA_27B = {
    **GEMMA_4B,
    "text_config": {
        **GEMMA_4B["text_config"],
        **{"head_dim": 128, "hidden_size": 5376, "intermediate_size": 21504, "num_attention_heads": 32},
        **{"num_hidden_layers": 62, "num_key_value_heads": 16, "query_pre_attn_scalar": 168},
    },
}
PUBLISHED: dict[str, dict[str, Any]] = {
    "Llama 2 7B": settings("llama", (4096, 11008, 32, 32, 32, 32000), pretraining_tp=1, max_position_embeddings=4096),
    "Llama 3.1 8B": settings(
        "llama",
        (4096, 14336, 32, 32, 8, 128256),
        max_position_embeddings=131072,
        attention_bias=False,
        mlp_bias=False,
        rope_theta=500000.0,
        rope_scaling=LLAMA3_ROPE,
    ),
    "Llama 3.2 1B": settings(
        "llama",
        (2048, 8192, 16, 32, 8, 128256),
        head_dim=64,
        max_position_embeddings=131072,
        rope_theta=500000.0,
        rope_scaling=LLAMA3_ROPE | {"factor": 32.0},
        tie_word_embeddings=True,
    ),
    "SmolLM2 135M": settings(
        "llama",
        (576, 1536, 30, 9, 3, 49152),
        is_llama_config=True,
        rope_interleaved=False,
        rope_scaling=None,
        rope_theta=100000,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    ),
    "SmolLM3 3B": settings(
        "smollm3",
        (2048, 11008, 36, 16, 4, 128256),
        layer_types=["full_attention"] * 36,
        no_rope_layer_interval=4,
        no_rope_layers=[1, 1, 1, 0] * 9,
        rope_theta=5000000.0,
        sliding_window=None,
        use_sliding_window=False,
        max_position_embeddings=65536,
    ),
    "Qwen2.5 0.5B": settings(
        "qwen2",
        (896, 4864, 24, 14, 2, 151936),
        rope_theta=1000000.0,
        max_position_embeddings=32768,
        tie_word_embeddings=True,
        **QWEN_UNUSED_WINDOW,
    ),
    "Qwen2.5 7B, long": settings(
        "qwen2",
        (3584, 18944, 28, 28, 4, 152064),
        rope_theta=1000000.0,
        max_position_embeddings=32768,
        rope_scaling={"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"},
        **QWEN_UNUSED_WINDOW,
    ),
    "DeepSeek R1 Distill Qwen 1.5B": settings(
        "qwen2",
        (1536, 8960, 28, 12, 2, 151936),
        rope_theta=10000,
        max_position_embeddings=131072,
        use_mrope=False,
        **QWEN_UNUSED_WINDOW,
    ),
    "Qwen3 0.6B": settings(
        "qwen3",
        (1024, 3072, 28, 16, 8, 151936),
        head_dim=128,
        attention_bias=False,
        rope_scaling=None,
        rope_theta=1000000,
        sliding_window=None,
        use_sliding_window=False,
        max_window_layers=28,
        max_position_embeddings=40960,
        tie_word_embeddings=True,
    ),
    "Qwen3 30B A3B": settings(
        "qwen3_moe",
        (2048, 6144, 48, 32, 4, 151936),
        head_dim=128,
        decoder_sparse_step=1,
        mlp_only_layers=[],
        moe_intermediate_size=768,
        norm_topk_prob=True,
        num_experts=128,
        num_experts_per_tok=8,
        router_aux_loss_coef=0.001,
        output_router_logits=False,
        rope_theta=1000000.0,
        sliding_window=None,
        use_sliding_window=False,
        max_position_embeddings=40960,
    ),
    "Mistral 7B v0.1": settings(
        "mistral", (4096, 14336, 32, 32, 8, 32000), sliding_window=4096, max_position_embeddings=32768
    ),
    "Mistral 7B v0.3": settings(
        "mistral",
        (4096, 14336, 32, 32, 8, 32768),
        sliding_window=None,
        rope_theta=1000000.0,
        max_position_embeddings=32768,
    ),
    "Mistral Nemo": settings(
        "mistral",
        (5120, 14336, 40, 32, 8, 131072),
        head_dim=128,
        sliding_window=None,
        rope_theta=1000000.0,
        max_position_embeddings=131072,
    ),
    "Gemma 3 1B": {
        **settings("gemma3_text", (1152, 6912, 26, 4, 1, 262144), head_dim=256, query_pre_attn_scalar=256),
        **{"hidden_act": None, "hidden_activation": "gelu_pytorch_tanh", "cache_implementation": "hybrid"},
        **{"attn_logit_softcapping": None, "final_logit_softcapping": None, "rope_local_base_freq": 10000},
        **{"rope_theta": 1000000, "sliding_window": 512, "sliding_window_pattern": 6},
        **{"max_position_embeddings": 32768, "rope_scaling": None, "attention_bias": False},
    },
    "Gemma 3 4B": GEMMA_4B,
    "Gemma 3 27B": GEMMA_27B,
}
# What transformers does not say in so many words: (context, windowed layers, layers without positions, score scale).
READ = {
    "Llama 2 7B": (4096, 0, 0, None),
    "Llama 3.1 8B": (131072, 0, 0, None),
    "Llama 3.2 1B": (131072, 0, 0, None),
    "SmolLM2 135M": (8192, 0, 0, None),
    "SmolLM3 3B": (65536, 0, 9, None),
    "Qwen2.5 0.5B": (32768, 0, 0, None),
    "Qwen2.5 7B, long": (131072, 0, 0, None),
    "DeepSeek R1 Distill Qwen 1.5B": (131072, 0, 0, None),
    "Qwen3 0.6B": (40960, 0, 0, None),
    "Qwen3 30B A3B": (40960, 0, 0, None),
    "Mistral 7B v0.1": (32768, 32, 0, None),
    "Mistral 7B v0.3": (32768, 0, 0, None),
    "Mistral Nemo": (131072, 0, 0, None),
    "Gemma 3 1B": (32768, 22, 0, 256**-0.5),
    "Gemma 3 4B": (131072, 29, 0, 256**-0.5),
    "Gemma 3 27B": (131072, 52, 0, 168**-0.5),
}


def read(published: dict[str, Any]) -> ModelConfig:
    (family,) = (f for f in FAMILIES if published["model_type"] in f.hf_model_types)
    tied = published.get("tie_word_embeddings", family.name in ("gemma3", "smollm3"))
    return read_config(Path("config.json"), family, published, has_head=not tied)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_model(name: str) -> None:
    ours = read(PUBLISHED[name])
    given = {key: value for key, value in PUBLISHED[name].items() if key != "model_type" and value is not None}
    theirs = AutoConfig.for_model(PUBLISHED[name]["model_type"], **given).get_text_config()
    assert (ours.hidden_size, ours.intermediate_size) == (theirs.hidden_size, theirs.intermediate_size)
    assert (ours.num_layers, ours.vocab_size) == (theirs.num_hidden_layers, theirs.vocab_size)
    assert (ours.num_heads, ours.num_kv_heads) == (theirs.num_attention_heads, theirs.num_key_value_heads)
    assert ours.head_dim == (getattr(theirs, "head_dim", None) or theirs.hidden_size // theirs.num_attention_heads)
    assert ours.rms_norm_eps == theirs.rms_norm_eps
    assert ours.qkv_bias == (ours.family == "qwen2") and not ours.mlp_bias
    assert ours.qk_norm == (ours.family in ("qwen3", "qwen3_moe", "gemma3"))
    windows = [layer.window for layer in ours.layers]
    if (kinds := getattr(theirs, "layer_types", None)) is not None:
        assert [w is not None for w in windows] == [kind == "sliding_attention" for kind in kinds]
    assert {w for w in windows if w is not None} <= {getattr(theirs, "sliding_window", None)}
    context, num_windowed, num_without, scale = READ[name]
    assert ours.max_model_tokens == context
    assert sum(w is not None for w in windows) == num_windowed
    assert sum(layer.rope is None for layer in ours.layers) == num_without
    assert ours.attention_scale == pytest.approx(scale)
    if ours.experts is not None:
        assert (ours.experts.num_experts, ours.experts.num_active) == (theirs.num_experts, theirs.num_experts_per_tok)
        assert (ours.experts.intermediate_size, ours.experts.normalise) == (768, True)


@pytest.mark.parametrize("name", PUBLISHED)
def test_its_rotary_frequencies(name: str) -> None:
    ours = read(PUBLISHED[name])
    given = {key: value for key, value in PUBLISHED[name].items() if key != "model_type" and value is not None}
    theirs = AutoConfig.for_model(PUBLISHED[name]["model_type"], **given).get_text_config()
    kinds = [None] if "rope_type" in theirs.rope_parameters else ["full_attention", "sliding_attention"]
    assert len(ours.ropes) == len(kinds)
    for rope, kind in zip(ours.ropes, kinds, strict=True):
        parameters = theirs.rope_parameters if kind is None else theirs.rope_parameters[kind]
        if parameters["rope_type"] == "default":
            powers = torch.arange(0, ours.head_dim, 2) / ours.head_dim
            expected, scale = parameters["rope_theta"] ** -powers, 1.0
        else:
            named = {} if kind is None else {"layer_type": kind}
            expected, scale = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](theirs, torch.device("cpu"), **named)
        found, found_scale = inverse_frequencies(rope, ours.head_dim)
        torch.testing.assert_close(found, expected.float(), rtol=1e-5, atol=0)
        assert found_scale == pytest.approx(scale)


@pytest.mark.parametrize(
    ("rope", "said"),
    [
        ({"type": "dynamic", "factor": 2.0}, "dynamic"),
        ({"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}, "longrope"),
        ({"type": "mrope", "mrope_section": [16, 24, 24]}, "mrope"),
    ],
)
def test_schemes_of_models_that_do_not_run(rope: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedModel, match=said):
        read(PUBLISHED["Qwen2.5 0.5B"] | {"rope_scaling": rope})
