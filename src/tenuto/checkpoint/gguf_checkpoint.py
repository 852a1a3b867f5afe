"""A model in a GGUF file, or in several that are parts of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from tenuto.checkpoint.blocks import Floats
from tenuto.checkpoint.config import MAX_EXPERTS, ModelConfig
from tenuto.checkpoint.families import FAMILIES, Family
from tenuto.checkpoint.gguf_config import read_config, read_tokenizer
from tenuto.checkpoint.gguf_parts import read_parts
from tenuto.checkpoint.stand_ins import refuse_gguf_kind
from tenuto.checkpoint.stored_model import StoredModel, Transformed, some
from tenuto.checkpoint.weight_file import StoredTensor, TensorSource
from tenuto.errors import ModelFileError, UnsupportedModel

_ROPE_DIVISORS = "rope_freqs.weight"
_MAX_ROPE_DIVISORS = 1024


class GGUFCheckpoint(StoredModel):
    """Opened and checked GGUF file; see the `Checkpoint` protocol."""

    def __init__(self, path: Path) -> None:
        model = read_parts(path)
        metadata, tensors = model.whole.metadata, dict(model.whole.tensors)
        refuse_gguf_kind(path, metadata.get("general.type"), metadata.get("general.architecture"))
        family = _family(path, metadata.get("general.architecture"))
        divisors = tensors.pop(_ROPE_DIVISORS, None)
        found = _by_neutral_name(path, family, tensors)
        self.config = read_config(path, family, metadata, found, None if divisors is None else _divisors(divisors))
        self.tokenizer = read_tokenizer(path, metadata, self.config)
        super().__init__(path, model.name, _in_order(family, self.config, found))
        self.fingerprint = self.fingerprint_with(model.headers)


def _in_order(family: Family, config: ModelConfig, tensors: Mapping[str, StoredTensor]) -> Mapping[str, TensorSource]:
    """The same tensors, with the rows of Q and K in the order that all families share."""
    if not family.gguf_interleaved_rope:
        return tensors
    num_heads = {"q": config.num_heads, "k": config.num_kv_heads}
    return {
        name: _paired(tensor, num_heads.get(name.partition(".attention.")[2].partition(".")[0]))
        for name, tensor in tensors.items()
    }


def _paired(tensor: StoredTensor, num_heads: int | None) -> TensorSource:
    if num_heads is None:
        return tensor
    if tensor.shape[0] % (2 * num_heads):
        raise ModelFileError(f"{tensor.label} has {tensor.shape[0]} rows, which {num_heads} heads cannot share")
    return Transformed(tensor, partial(split_rotary_pairs, num_heads=num_heads))


def split_rotary_pairs(rows: Floats, num_heads: int) -> Floats:
    """Undo the row order of llama-type GGUF files: head rows (a0 b0 a1 b1 ...) become (a0 a1 ... b0 b1 ...).

    Args:
        rows: [num_heads * head_dim, ...]; K has the number of *KV* heads.
    """
    paired = rows.reshape(num_heads, -1, 2, *rows.shape[1:])
    return np.ascontiguousarray(paired.swapaxes(1, 2)).reshape(rows.shape)


def _divisors(tensor: StoredTensor) -> tuple[float, ...]:
    if len(tensor.shape) != 1 or tensor.shape[0] > _MAX_ROPE_DIVISORS:
        raise ModelFileError(f"{tensor.label} has shape {list(tensor.shape)}, expected one row")
    return tuple(tensor.read().tolist())


def _family(path: Path, architecture: object) -> Family:
    for family in FAMILIES:
        if architecture in family.gguf_architectures:
            return family
    known = ", ".join(name for family in FAMILIES for name in family.gguf_architectures)
    raise UnsupportedModel(f"{path}: general.architecture is {architecture!r:.80}; supported: {known}")


def _by_neutral_name(path: Path, family: Family, tensors: dict[str, StoredTensor]) -> dict[str, StoredTensor]:
    found: dict[str, StoredTensor] = {}
    strange: list[str] = []
    for name, tensor in tensors.items():
        neutral = family.neutral_gguf(name)
        if neutral is None:
            strange.append(f"tensor {name:.80} is not part of a {family.name} model")
        elif family.gguf_stacked_experts and ".experts." in neutral:
            found |= _unstacked(neutral, tensor)
        else:
            found[neutral] = tensor
    if strange and any(".ffn_gate_inp." in name for name in tensors) and not family.gguf_stacked_experts:
        strange = [f"a mixture of experts of the {family.name} family is not supported; of qwen3_moe it is"]
    if strange:
        raise UnsupportedModel.of(path, some(strange))
    return found


def _unstacked(neutral: str, tensor: StoredTensor) -> dict[str, StoredTensor]:
    """The matrices of single experts, which lie one after the other in a tensor [experts, out, in]."""
    if len(tensor.shape) != 3 or tensor.shape[0] > MAX_EXPERTS:
        raise ModelFileError(f"{tensor.label} has shape {list(tensor.shape)}, expected [experts, out, in]")
    num_experts, *shape = tensor.shape
    size = tensor.num_bytes // num_experts  # whole rows of blocks, so it divides evenly
    before, after = neutral.split(".experts.")
    return {
        f"{before}.experts.{index}.{after}": replace(
            tensor, shape=tuple(shape), offset=tensor.offset + index * size, num_bytes=size
        )
        for index in range(num_experts)
    }
