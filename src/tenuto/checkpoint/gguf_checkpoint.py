"""A model in one GGUF file."""

from __future__ import annotations

import hashlib
import mmap
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tenuto.checkpoint.families import FAMILIES, Family, neutral_name
from tenuto.checkpoint.gguf_config import read_config, read_tokenizer
from tenuto.checkpoint.gguf_format import GGUFTensor, read_header
from tenuto.checkpoint.quant_types import dequantise
from tenuto.errors import ModelFileError, UnsupportedModel

_SAMPLE_BYTES = 256


class GGUFCheckpoint:
    """Opened and checked GGUF file; see the `Checkpoint` protocol."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.stem
        with path.open("rb") as file:
            self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        header = read_header(self._data, path)
        family = _family(path, header.metadata.get("general.architecture"))
        self._tensors = _by_neutral_name(path, family, header.tensors)
        self.config = read_config(path, family, header.metadata, self._tensors)
        self.tokenizer = read_tokenizer(path, header.metadata, self.config)
        self._interleaved_heads = _interleaved_heads(family, self.config.num_heads, self.config.num_kv_heads)
        self.fingerprint = self._fingerprint(header.data_start)

    def tensor_names(self) -> list[str]:
        return list(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensor(name).shape

    def read(self, name: str) -> npt.NDArray[np.float32]:
        tensor = self._tensor(name)
        raw = np.frombuffer(self._data, np.uint8, tensor.num_bytes, tensor.offset)
        values = dequantise(raw, tensor.type_name, tensor.shape)
        num_heads = self._interleaved_heads.get(name.partition(".attention.")[2])
        if num_heads is None:
            return values
        if tensor.shape[0] % (2 * num_heads):
            raise ModelFileError(
                f"{self.path}: tensor {tensor.name} has {tensor.shape[0]} rows, which {num_heads} heads cannot share"
            )
        return split_rotary_pairs(values, num_heads)

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
    return {"q.weight": num_heads, "k.weight": num_kv_heads} if family.gguf_interleaved_rope else {}


def _family(path: Path, architecture: object) -> Family:
    for family in FAMILIES:
        if family.gguf_architecture == architecture:
            return family
    known = ", ".join(family.gguf_architecture for family in FAMILIES)
    raise UnsupportedModel(f"{path}: general.architecture is {architecture!r}; supported: {known}")


def _by_neutral_name(path: Path, family: Family, tensors: dict[str, GGUFTensor]) -> dict[str, GGUFTensor]:
    found: dict[str, GGUFTensor] = {}
    for name, tensor in tensors.items():
        if name.startswith("rope_"):
            raise UnsupportedModel(f"{path}: tensor {name} scales rotary frequencies, which is not supported yet")
        neutral = neutral_name(family.gguf_names, name)
        if neutral is None:
            raise UnsupportedModel(f"{path}: tensor {name} is not part of a {family.name} model")
        found[neutral] = tensor
    return found
