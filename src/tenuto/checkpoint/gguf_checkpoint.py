"""A model in one GGUF file."""

from __future__ import annotations

import hashlib
import mmap
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tenuto.checkpoint.config import MAX_EXPERTS
from tenuto.checkpoint.families import FAMILIES, Family
from tenuto.checkpoint.gguf_config import read_config, read_tokenizer
from tenuto.checkpoint.gguf_format import GGUFTensor, read_header
from tenuto.checkpoint.quant_types import dequantise
from tenuto.errors import ModelFileError, UnsupportedModel

_SAMPLE_BYTES = 256
_ROPE_DIVISORS = "rope_freqs.weight"
_MAX_ROPE_DIVISORS = 1024


class GGUFCheckpoint:
    """Opened and checked GGUF file; see the `Checkpoint` protocol."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.stem
        with path.open("rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        header = read_header(self._data, path)
        family = _family(path, header.metadata.get("general.architecture"))
        divisors = header.tensors.pop(_ROPE_DIVISORS, None)
        self._tensors = _by_neutral_name(path, family, header.tensors)
        self.config = read_config(
            path, family, header.metadata, self._tensors, None if divisors is None else self._divisors(divisors)
        )
        self.tokenizer = read_tokenizer(path, header.metadata, self.config)
        self._interleaved_heads = _interleaved_heads(family, self.config.num_heads, self.config.num_kv_heads)
        self.fingerprint = self._fingerprint(header.data_start)

    def tensor_names(self) -> list[str]:
        return list(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensor(name).shape

    def read(self, name: str) -> npt.NDArray[np.float32]:
        tensor = self._tensor(name)
        values = self._values(tensor)
        num_heads = self._interleaved_heads.get(name.partition(".attention.")[2].partition(".")[0])
        if num_heads is None:
            return values
        if tensor.shape[0] % (2 * num_heads):
            raise ModelFileError(
                f"{self.path}: tensor {tensor.name} has {tensor.shape[0]} rows, which {num_heads} heads cannot share"
            )
        return split_rotary_pairs(values, num_heads)

    def _values(self, tensor: GGUFTensor) -> npt.NDArray[np.float32]:
        raw = np.frombuffer(self._data, np.uint8, tensor.num_bytes, tensor.offset)
        return dequantise(raw, tensor.type_name, tensor.shape)

    def _divisors(self, tensor: GGUFTensor) -> tuple[float, ...]:
        if len(tensor.shape) != 1 or tensor.shape[0] > _MAX_ROPE_DIVISORS:
            raise ModelFileError(f"{self.path}: tensor {tensor.name} has shape {list(tensor.shape)}, expected one row")
        return tuple(self._values(tensor).tolist())

    def _tensor(self, name: str) -> GGUFTensor:
        if name not in self._tensors:
            raise ModelFileError(f"{self.path}: no tensor for {name}")
        return self._tensors[name]

    def _fingerprint(self, data_start: int) -> str:
        digest = hashlib.sha256(self._data[:data_start])
        for tensor in self._tensors.values():
            digest.update(self._data[tensor.offset : tensor.offset + min(tensor.num_bytes, _SAMPLE_BYTES)])
        return digest.hexdigest()


def split_rotary_pairs(rows: npt.NDArray[np.float32], num_heads: int) -> npt.NDArray[np.float32]:
    """Undo the row order of llama-type GGUF files: head rows (a0 b0 a1 b1 ...) become (a0 a1 ... b0 b1 ...).

    Args:
        rows: [num_heads * head_dim, ...]; K has the number of *KV* heads.
    """
    paired = rows.reshape(num_heads, -1, 2, *rows.shape[1:])
    return np.ascontiguousarray(paired.swapaxes(1, 2)).reshape(rows.shape)


def _interleaved_heads(family: Family, num_heads: int, num_kv_heads: int) -> dict[str, int]:
    return {"q": num_heads, "k": num_kv_heads} if family.gguf_interleaved_rope else {}


def _family(path: Path, architecture: object) -> Family:
    for family in FAMILIES:
        if architecture in family.gguf_architectures:
            return family
    known = ", ".join(name for family in FAMILIES for name in family.gguf_architectures)
    raise UnsupportedModel(f"{path}: general.architecture is {architecture!r}; supported: {known}")


def _by_neutral_name(path: Path, family: Family, tensors: dict[str, GGUFTensor]) -> dict[str, GGUFTensor]:
    found: dict[str, GGUFTensor] = {}
    strange: list[str] = []
    for name, tensor in tensors.items():
        neutral = family.neutral_gguf(name)
        if neutral is None:
            strange.append(f"tensor {name:.80} is not part of a {family.name} model")
        elif family.gguf_stacked_experts and ".experts." in neutral:
            found |= _unstacked(path, neutral, tensor)
        else:
            found[neutral] = tensor
    if strange:
        raise UnsupportedModel.of(path, strange)
    return found


def _unstacked(path: Path, neutral: str, tensor: GGUFTensor) -> dict[str, GGUFTensor]:
    """The matrices of single experts, which lie one after the other in a tensor [experts, out, in]."""
    if len(tensor.shape) != 3 or tensor.shape[0] > MAX_EXPERTS:
        shape = list(tensor.shape)
        raise ModelFileError(f"{path}: tensor {tensor.name} has shape {shape}, expected [experts, out, in]")
    num_experts, *shape = tensor.shape
    size = tensor.num_bytes // num_experts  # whole rows of blocks, so it divides evenly
    before, after = neutral.split(".experts.")
    return {
        f"{before}.experts.{index}.{after}": replace(
            tensor, shape=tuple(shape), offset=tensor.offset + index * size, num_bytes=size
        )
        for index in range(num_experts)
    }
