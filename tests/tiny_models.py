"""Writes tiny llama models with random weights, as a Hugging Face directory and as a GGUF file."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import save_file

from stored_blocks import random_blocks

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class TinyLlama:
    """Sizes of a model small enough to check by eye, with rows that fit blocks of 32."""

    vocab_size: int = 64
    hidden_size: int = 64
    intermediate_size: int = 96
    num_layers: int = 2
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 16
    max_model_tokens: int = 2048
    rope_theta: float = 10000.0
    tied: bool = False

    def hf_config(self) -> dict[str, Any]:
        return {
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "max_position_embeddings": self.max_model_tokens,
            "rope_theta": self.rope_theta,
            "rms_norm_eps": 1e-5,
            "hidden_act": "silu",
            "tie_word_embeddings": self.tied,
            "bos_token_id": 1,
            "eos_token_id": 2,
        }

    def weights(self, seed: int = 0) -> Arrays:
        """Random float32 weights under their Hugging Face names."""
        draw = np.random.default_rng(seed)
        hidden, inner = self.hidden_size, self.intermediate_size
        heads, kv_heads = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab_size, hidden)}
        for i in range(self.num_layers):
            layer = f"model.layers.{i}."
            shapes |= {
                f"{layer}input_layernorm.weight": (hidden,),
                f"{layer}self_attn.q_proj.weight": (heads, hidden),
                f"{layer}self_attn.k_proj.weight": (kv_heads, hidden),
                f"{layer}self_attn.v_proj.weight": (kv_heads, hidden),
                f"{layer}self_attn.o_proj.weight": (hidden, heads),
                f"{layer}post_attention_layernorm.weight": (hidden,),
                f"{layer}mlp.gate_proj.weight": (inner, hidden),
                f"{layer}mlp.up_proj.weight": (inner, hidden),
                f"{layer}mlp.down_proj.weight": (hidden, inner),
            }
        shapes["model.norm.weight"] = (hidden,)
        if not self.tied:
            shapes["lm_head.weight"] = (self.vocab_size, hidden)
        arrays = {name: draw.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        # Norms near one; matrices large enough that attention is far from uniform.
        return {name: 1 + a / 8 if a.ndim == 1 else a * np.float32(2 / hidden**0.5) for name, a in arrays.items()}


def write_tokenizer_json(directory: Path) -> None:
    added = [{"id": i, "content": text, "special": True} for i, text in enumerate(("<unk>", "<s>", "</s>", "<|结束|>"))]
    tokenizer = {"added_tokens": added, "model": {"type": "BPE", "vocab": {}, "merges": []}}
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")


def write_hf(directory: Path, tiny: TinyLlama, weights: Arrays, **config: Any) -> Path:
    """`config` overrides keys of config.json."""
    directory.mkdir(parents=True, exist_ok=True)
    save_file(weights, str(directory / "model.safetensors"))
    (directory / "config.json").write_text(json.dumps(tiny.hf_config() | config))
    write_tokenizer_json(directory)
    return directory


def write_sharded(directory: Path, tiny: TinyLlama, weights: Arrays) -> Path:
    """The same in two shards with an index."""
    write_hf(directory, tiny, weights)
    (directory / "model.safetensors").unlink()
    names = sorted(weights)
    shards = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for shard, members in shards.items():
        save_file({name: weights[name] for name in members}, str(directory / shard))
    where = {name: shard for shard, members in shards.items() for name in members}
    (directory / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return directory


_GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem.startswith("model.layers."):
        _, _, index, part = stem.split(".", 3)
        return f"blk.{index}.{_GGUF_NAMES[part]}.weight"
    return f"{_GGUF_NAMES[stem]}.weight"


def interleave(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """Row order of llama-type GGUF files, as converters write it: each head's halves are dealt alternately."""
    size = rows.shape[0] // num_heads
    order = [
        head * size + half * (size // 2) + j for head in range(num_heads) for j in range(size // 2) for half in (0, 1)
    ]
    return np.ascontiguousarray(rows[order])


def stored_as(rows: np.ndarray, kind: gguf.GGMLQuantizationType) -> tuple[np.ndarray, np.ndarray]:
    """(bytes as stored, the float32 values they stand for), by the gguf package.

    Types that the package cannot quantise to get random blocks, whose values are about as large as those of `rows`.
    """
    try:
        data = gguf.quants.quantize(rows, kind)
    except NotImplementedError:
        data = _random_rows(rows, kind)
    return data, gguf.quants.dequantize(data, kind).reshape(rows.shape)


def _random_rows(rows: np.ndarray, kind: gguf.GGMLQuantizationType) -> np.ndarray:
    per_block, _ = gguf.constants.GGML_QUANT_SIZES[kind]
    seed, count = zlib.crc32(rows.tobytes()), rows.size // per_block
    size = rows.std() / gguf.quants.dequantize(random_blocks(kind.name, count, seed, size=1.0), kind).std()
    return random_blocks(kind.name, count, seed, size=size).reshape(len(rows), -1)


def write_gguf(
    path: Path, tiny: TinyLlama, weights: Arrays, kind: str = "F32", extra: dict[str, Any] | None = None
) -> Arrays:
    """Write a file whose matrices are of one ggml type; returns the exact weights it stands for, by HF name.

    Args:
        extra: further metadata: bool, int, float or str by key.
    """
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(tiny.num_layers)
    writer.add_context_length(tiny.max_model_tokens)
    writer.add_embedding_length(tiny.hidden_size)
    writer.add_feed_forward_length(tiny.intermediate_size)
    writer.add_head_count(tiny.num_heads)
    writer.add_head_count_kv(tiny.num_kv_heads)
    writer.add_key_length(tiny.head_dim)
    writer.add_value_length(tiny.head_dim)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(tiny.rope_theta)
    writer.add_rope_dimension_count(tiny.head_dim)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(["<unk>", "<s>", "</s>", "天", *(f"t{i}" for i in range(4, tiny.vocab_size))])
    writer.add_token_types([2, 3, 3, *([1] * (tiny.vocab_size - 3))])
    writer.add_token_merges(["t 1", "t 2"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    adders = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    for key, value in (extra or {}).items():
        adders[type(value)](key, value)
    exact: Arrays = {}
    for name, values in weights.items():
        heads = {"q_proj": tiny.num_heads, "k_proj": tiny.num_kv_heads}.get(name.split(".")[-2])
        ggml = gguf.GGMLQuantizationType["F32" if values.ndim == 1 else kind]
        # Quantisation is along rows, so it commutes with their order: `exact` stays in the original order.
        data, exact[name] = stored_as(values, ggml)
        writer.add_tensor(gguf_name(name), interleave(data, heads) if heads else data, raw_dtype=ggml)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return exact
