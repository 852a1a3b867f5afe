"""The same model in the formats that other engines read: GGUF of another quantisation, a Hugging Face directory."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from tenuto.checkpoint import Checkpoint
from tenuto.errors import UnsupportedModel

GGUFKind: TypeAlias = Literal["Q8_0", "Q4_0"]

_HF_LAYER = {
    "attention_norm": "input_layernorm",
    "attention.q": "self_attn.q_proj",
    "attention.k": "self_attn.k_proj",
    "attention.v": "self_attn.v_proj",
    "attention.o": "self_attn.o_proj",
    "mlp_norm": "post_attention_layernorm",
    "mlp.gate": "mlp.gate_proj",
    "mlp.up": "mlp.up_proj",
    "mlp.down": "mlp.down_proj",
}
_HF_OTHER = {"embed": "model.embed_tokens", "norm": "model.norm", "lm_head": "lm_head"}


def write_gguf(source: Path, target: Path, kind: GGUFKind) -> None:
    """The model of a GGUF file with its matrices quantised anew; everything else of the file stays.

    The embedding, which is also the output matrix of small models, is never smaller than Q8_0, as llama.cpp's own tool
    keeps it larger. The file appears whole or not at all.

    Raises:
        UnsupportedModel: `source` is no GGUF file.
    """
    import gguf

    if source.suffix.lower() != ".gguf":
        raise UnsupportedModel(f"{source}: only a GGUF file can be quantised anew for llama.cpp")
    reader = gguf.GGUFReader(source)
    unfinished = target.with_suffix(".part")
    fields = reader.fields
    writer = gguf.GGUFWriter(unfinished, fields["general.architecture"].contents())
    for field in fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
            continue
        sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=sub_type)
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{kind}"])
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        small = values.ndim < 2
        wanted = "F32" if small else "Q8_0" if tensor.name in ("token_embd.weight", "output.weight") else kind
        quantised = gguf.GGMLQuantizationType[wanted]
        data = values.astype(np.float32) if small else gguf.quants.quantize(values.astype(np.float32), quantised)
        writer.add_tensor(tensor.name, data, raw_dtype=quantised)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(unfinished, target)


def write_hf_directory(checkpoint: Checkpoint, target: Path) -> None:
    """`config.json` and float32 `model.safetensors`, the very numbers of the checkpoint.

    Raises:
        UnsupportedModel: a family that is not Llama's, or with more than Llama has.
    """
    from safetensors.numpy import save_file

    names = {name: _hf_name(name) for name in checkpoint.tensor_names()}
    strange = [name for name, theirs in names.items() if theirs is None]
    if checkpoint.config.family != "llama" or strange:
        raise UnsupportedModel(
            f"{checkpoint.path}: only a plain Llama model can be written as a Hugging Face directory; "
            f"this one is {checkpoint.config.family}"
        )
    target.mkdir(parents=True, exist_ok=True)
    tensors = {theirs: checkpoint.read(name) for name, theirs in names.items() if theirs is not None}
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    (target / "config.json").write_text(json.dumps(_hf_config(checkpoint), indent=1), encoding="utf-8")


def _hf_name(neutral: str) -> str | None:
    stem, _, kind = neutral.rpartition(".")
    if kind != "weight":
        return None
    if stem in _HF_OTHER:
        return f"{_HF_OTHER[stem]}.weight"
    _, index, part = (*stem.split(".", 2), "", "")[:3]
    return f"model.layers.{index}.{_HF_LAYER[part]}.weight" if part in _HF_LAYER else None


def _hf_config(checkpoint: Checkpoint) -> dict[str, Any]:
    config = checkpoint.config
    (rope,) = config.ropes
    if rope.scaling is not None:
        raise UnsupportedModel(f"{checkpoint.path}: its RoPE is scaled, which is not written to a config here")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": config.max_model_tokens,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": rope.theta,
        "tie_word_embeddings": config.tie_embeddings,
        "torch_dtype": "float32",
        "bos_token_id": config.bos_id,
        "eos_token_id": list(config.eos_ids),
    }
