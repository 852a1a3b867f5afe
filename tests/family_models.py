"""Tiny random models of every family, made and saved by `transformers`, and the same as GGUF files."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from tiny_models import interleave, write_tokenizer_json

VOCAB = 96
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-6,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 256}
GEMMA_ROPE = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 32, "norm_topk_prob": True}


@dataclass(frozen=True)
class FamilyModel:
    """One configuration: the model type of `transformers`, its settings beyond `SIZES`, and a GGUF file's, if any."""

    model_type: str
    settings: dict[str, Any] = field(default_factory=dict)
    arch: str | None = None  # None: GGUF has no way to say this
    metadata: dict[str, Any] = field(default_factory=dict)  # keys after `<arch>.`


FAMILY_MODELS = {
    "llama": FamilyModel("llama", arch="llama"),
    "llama-biases": FamilyModel("llama", {"attention_bias": True, "mlp_bias": True}, "llama"),
    "llama-linear": FamilyModel(
        "llama",
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}},
        "llama",
        {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
    ),
    "llama3": FamilyModel("llama", {"rope_parameters": LLAMA3_ROPE, "tie_word_embeddings": True}, "llama"),
    "llama-yarn": FamilyModel(
        "llama",
        {"rope_parameters": YARN},
        "llama",
        {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 256},
    ),
    "mistral": FamilyModel("mistral", {"sliding_window": None}, "llama"),
    "mistral-window": FamilyModel("mistral", {"sliding_window": 24}),
    "qwen2": FamilyModel("qwen2", {"tie_word_embeddings": True}, "qwen2"),
    "qwen2-windows": FamilyModel("qwen2", {"use_sliding_window": True, "sliding_window": 20, "max_window_layers": 2}),
    "qwen2-yarn": FamilyModel("qwen2", {"rope_parameters": YARN | {"beta_fast": 16.0, "truncate": False}}),
    "qwen3": FamilyModel("qwen3", {"head_dim": 32}, "qwen3"),
    "qwen3-biases": FamilyModel("qwen3", {"attention_bias": True}),
    "qwen3-moe": FamilyModel("qwen3_moe", EXPERTS, "qwen3moe"),
    "qwen3-moe-mixed": FamilyModel(
        "qwen3_moe", EXPERTS | {"norm_topk_prob": False, "decoder_sparse_step": 2, "mlp_only_layers": [3]}
    ),
    "gemma3": FamilyModel(
        "gemma3_text",
        {
            "num_hidden_layers": 7,
            "sliding_window": 24,
            "query_pre_attn_scalar": 16,
            "rope_parameters": GEMMA_ROPE,
            "tie_word_embeddings": True,
        },
        "gemma3",
        {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0, "attention.sliding_window": 24},
    ),
    "gemma3-one-head": FamilyModel(
        "gemma3_text",
        {"num_key_value_heads": 1, "layer_types": ["full_attention", "sliding_attention"] * 2, "sliding_window": 1},
    ),
    "smollm3": FamilyModel("smollm3", {"rope_parameters": {"rope_type": "default", "rope_theta": 5e4}}, "smollm3"),
    "smollm3-list": FamilyModel("smollm3", {"no_rope_layers": [0, 1, 1, 0], "attention_bias": True}),
}


def make(model: FamilyModel, seed: int = 0) -> PreTrainedModel:
    """The reference: random weights, norms near one, biases and matrices large enough to matter."""
    config = AutoConfig.for_model(model.model_type, **(SIZES | model.settings))
    config._attn_implementation = "eager"
    made = AutoModelForCausalLM.from_config(config).float().eval()
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in made.named_parameters():
            noise = torch.randn(weight.shape, generator=draw)
            is_gemma_norm = model.model_type.startswith("gemma") and weight.ndim == 1
            if name.endswith("norm.weight") or "layernorm" in name:
                weight.copy_(noise / 8 + (0 if is_gemma_norm else 1))
            else:
                weight.copy_(noise * (2 / weight.shape[-1] ** 0.5 if weight.ndim > 1 else 0.3))
    made.tie_weights()
    return made


def save(made: PreTrainedModel, directory: Path) -> Path:
    """A Hugging Face directory, as `transformers` writes it, with a tokenizer."""
    made.save_pretrained(directory)
    write_tokenizer_json(directory)
    return directory


def save_gguf(model: FamilyModel, made: PreTrainedModel, path: Path) -> Path:
    """The same weights as a GGUF file in F32, named by the gguf package's own table."""
    assert model.arch is not None
    config, sizes = made.config, SIZES | model.settings
    writer = gguf.GGUFWriter(path, model.arch)
    writer.add_block_count(sizes["num_hidden_layers"])
    writer.add_context_length(sizes["max_position_embeddings"])
    writer.add_embedding_length(sizes["hidden_size"])
    writer.add_feed_forward_length(sizes["intermediate_size"])
    writer.add_head_count(sizes["num_attention_heads"])
    writer.add_head_count_kv(sizes["num_key_value_heads"])
    writer.add_key_length(sizes["head_dim"])
    writer.add_value_length(sizes["head_dim"])
    writer.add_layer_norm_rms_eps(sizes["rms_norm_eps"])
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    if model.model_type == "qwen3_moe":
        writer.add_expert_count(sizes["num_experts"])
        writer.add_expert_used_count(sizes["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(sizes["moe_intermediate_size"])
    adders = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    for key, value in model.metadata.items():
        adders[type(value)](f"{model.arch}.{key}", value)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(["<unk>", "<s>", "</s>", *(f"t{i}" for i in range(3, VOCAB))])
    writer.add_token_types([2, 3, 3, *([1] * (VOCAB - 3))])
    writer.add_token_merges([])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    for name, values in _gguf_tensors(model, made).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _gguf_tensors(model: FamilyModel, made: PreTrainedModel) -> dict[str, np.ndarray]:
    sizes = SIZES | model.settings
    arch = {name: key for key, name in gguf.MODEL_ARCH_NAMES.items()}[model.arch]
    table = gguf.get_tensor_name_map(arch, sizes["num_hidden_layers"])
    heads = {"q_proj": sizes["num_attention_heads"], "k_proj": sizes["num_key_value_heads"]}
    tensors: dict[str, np.ndarray] = {}
    for name, weight in made.state_dict().items():
        values = weight.numpy()
        if name == "lm_head.weight" and sizes["tie_word_embeddings"]:
            continue
        if found := re.fullmatch(r"model\.layers\.(\d+)\.mlp\.experts\.(gate_up|down)_proj", name):
            layer, part = found.groups()
            halves = np.split(values, 2, axis=1) if part == "gate_up" else [values]
            for kind, half in zip(("gate", "up") if part == "gate_up" else ("down",), halves, strict=True):
                tensors[f"blk.{layer}.ffn_{kind}_exps.weight"] = np.ascontiguousarray(half)
            continue
        part = name.split(".")[-2]
        if model.arch in ("llama", "smollm3") and part in heads:
            values = interleave(values, heads[part])
        if model.arch == "gemma3" and name.endswith("norm.weight"):
            values = values + 1
        stem, _, kind = name.rpartition(".")
        tensors[f"{table.get_name(stem)}.{kind}"] = np.ascontiguousarray(values)
    if sizes.get("rope_parameters", {}).get("rope_type") == "llama3":
        # What converters store: by how much each plain frequency is divided.
        plain = 1e4 ** (-np.arange(0, sizes["head_dim"], 2) / sizes["head_dim"])
        scaled = made.model.rotary_emb.inv_freq.numpy()
        tensors["rope_freqs.weight"] = (plain / scaled).astype(np.float32)
    return tensors
