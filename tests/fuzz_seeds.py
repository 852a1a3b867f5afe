"""Small valid models in every format and with every kind of tokenizer, to be mutated."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from tokenizers import pre_tokenizers

from quantised_models import (
    awq_parts,
    compressed_config,
    draw,
    gptq_parts,
    int8_parts,
    packed_parts,
    write_quantised,
)
from tiny_models import TinyLlama, gguf_name, stored_as, write_hf, write_sharded

SPECIAL = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
MERGES = ["h e", "l l", "he ll", "hell o"]
TINY = TinyLlama(vocab_size=320, hidden_size=32, intermediate_size=32, num_layers=1, num_heads=2, num_kv_heads=1)


@dataclass(frozen=True)
class Seed:
    """A model as files; `opened` is the one to give, or "" for the directory."""

    name: str
    files: dict[str, bytes]
    opened: str = ""


def _byte_level() -> list[str]:
    merged = [merge.replace(" ", "") for merge in MERGES]
    return [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), *merged]


def _sentencepiece() -> list[str]:
    return [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *"▁helo天气", "▁h", "el", "llo"]


def _tokenizer_json() -> str:
    vocab = {text: index for index, text in enumerate(_byte_level())}
    added = [
        {"id": i, "content": text, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False}
        for i, text in enumerate(SPECIAL)
    ]  # fmt: skip
    split = {
        "type": "Split",
        "pattern": {"Regex": r"\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+"},
        "behavior": "Isolated",
        "invert": False,
    }
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "vocab": vocab, "merges": MERGES},
    }
    return json.dumps(tokenizer, ensure_ascii=False)


def _gguf(path: Path, kind: str, llama_tokens: bool) -> None:
    tokens = _sentencepiece() if llama_tokens else _byte_level()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(512)
    writer.add_embedding_length(TINY.hidden_size)
    writer.add_feed_forward_length(TINY.intermediate_size)
    writer.add_head_count(TINY.num_heads)
    writer.add_head_count_kv(TINY.num_kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(1e4)
    writer.add_tokenizer_model("llama" if llama_tokens else "gpt2")
    writer.add_tokenizer_pre("default" if llama_tokens else "smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if t in SPECIAL else 6 if t.startswith("<0x") else 1 for t in tokens])
    if llama_tokens:
        writer.add_token_scores([-float(i) for i in range(len(tokens))])
    else:
        writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}")
    for name, values in TINY.weights().items():
        ggml = gguf.GGMLQuantizationType["F32" if values.ndim == 1 else kind]
        writer.add_tensor(gguf_name(name), stored_as(values, ggml)[0], raw_dtype=ggml)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _directory(path: Path, write: Callable[[Path], Any], name: str) -> Seed:
    write(path)
    (path / "tokenizer.json").write_text(_tokenizer_json(), encoding="utf-8")
    config = {"bos_token": "<s>", "eos_token": {"content": "<|im_end|>"}, "chat_template": "{{ messages[0].content }}"}
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    (path / "generation_config.json").write_text('{"eos_token_id": [2, 4]}')
    return Seed(name, {p.name: p.read_bytes() for p in sorted(path.iterdir())})


def _quantised(settings: dict[str, Any], pack: Any) -> Callable[[Path], Any]:
    return lambda path: write_quantised(path, TINY, settings, pack)


_QUANTISED: dict[str, tuple[dict[str, Any], Any]] = {
    "awq": (
        {"quant_method": "awq", "bits": 4, "group_size": 16, "version": "gemm", "zero_point": True},
        lambda shape, seed: (awq_parts(d := draw(shape, 4, 16, seed)), d.values),
    ),
    "gptq": (
        {"quant_method": "gptq", "bits": 4, "group_size": 16, "desc_act": True, "dynamic": {"-:.*head": {}}},
        lambda shape, seed: (gptq_parts(d := draw(shape, 4, 16, seed, in_order=False), 4), d.values),
    ),
    "packed": (
        compressed_config(symmetric=False, group_size=16, groups=2),
        lambda shape, seed: (packed_parts(d := draw(shape, 4, 16, seed), 4, with_order=True), d.values),
    ),
    "int8": (
        compressed_config("int-quantized", num_bits=8, strategy="channel", group_size=None),
        lambda shape, seed: (int8_parts(d := draw(shape, 8, 1000, seed), zeros=True), d.values),
    ),
}


def _write_experts(path: Path) -> None:
    """Qwen 3 with a mixture of two experts in place of the MLP."""
    weights = TINY.weights()
    parts = {name: weights.pop(name) for name in list(weights) if ".mlp." in name}
    for name, values in parts.items():
        weights |= {name.replace(".mlp.", f".mlp.experts.{index}."): values for index in range(2)}
    weights["model.layers.0.mlp.gate.weight"] = np.ones((2, TINY.hidden_size), np.float32)
    weights |= {f"model.layers.0.self_attn.{x}_norm.weight": np.ones(TINY.head_dim, np.float32) for x in "qk"}
    experts = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": TINY.intermediate_size}
    write_hf(path, TINY, weights, model_type="qwen3_moe", norm_topk_prob=True, **experts)


def make_seeds() -> list[Seed]:
    seeds = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for kind, llama_tokens in (("Q8_0", False), ("Q4_1", True), ("F16", False)):
            path = root / f"{kind}.gguf"
            _gguf(path, kind, llama_tokens)
            seeds.append(Seed(f"gguf {kind}", {path.name: path.read_bytes()}, path.name))
        weights = {name: values.astype(np.float16) for name, values in TINY.weights().items()}
        seeds.append(_directory(root / "one", lambda path: write_hf(path, TINY, weights), "directory"))
        seeds.append(_directory(root / "two", lambda path: write_sharded(path, TINY, weights), "shards"))
        seeds.append(_directory(root / "experts", _write_experts, "experts"))
        seeds += [_directory(root / name, _quantised(*how), name) for name, how in _QUANTISED.items()]
    return seeds
