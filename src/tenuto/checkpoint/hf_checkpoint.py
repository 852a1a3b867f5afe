"""A model in a Hugging Face directory: config.json, safetensors, tokenizer.json."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tenuto.checkpoint.families import FAMILIES, Family
from tenuto.checkpoint.hf_config import read_config
from tenuto.checkpoint.hf_tokenizer import read_tokenizer
from tenuto.checkpoint.json_file import read_json
from tenuto.checkpoint.quant_types import dequantise
from tenuto.checkpoint.safetensors_format import StoredTensor, read_table
from tenuto.errors import ModelFileError, UnsupportedModel

_SAMPLE_BYTES = 256
_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"


class HFCheckpoint:
    """Opened and checked directory; see the `Checkpoint` protocol."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.resolve().name
        config = read_json(path / "config.json")
        generation = read_json(path / "generation_config.json", optional=True)
        tokenizer_config = read_json(path / "tokenizer_config.json", optional=True)
        family = _family(path, config.get("model_type"))
        headers, tensors = stored_tensors(path)
        self._tensors = _by_neutral_name(path, family, tensors)
        self._norm_offset = np.float32(family.hf_norm_offset)
        base = read_config(path / "config.json", family, config, has_head="lm_head.weight" in self._tensors)
        self.config, self.tokenizer = read_tokenizer(path, base, config, generation, tokenizer_config)
        self.fingerprint = self._fingerprint(headers)

    def tensor_names(self) -> list[str]:
        return list(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensor(name).shape

    def read(self, name: str) -> npt.NDArray[np.float32]:
        tensor = self._tensor(name)
        raw = np.fromfile(tensor.path, np.uint8, tensor.num_bytes, offset=tensor.offset)
        if raw.size != tensor.num_bytes:
            raise ModelFileError(f"{tensor.path}: tensor {tensor.name} could not be read whole; the file changed")
        values = dequantise(raw, tensor.type_name, tensor.shape)
        if self._norm_offset and name.endswith("norm.weight"):
            values += self._norm_offset
        return values

    def _tensor(self, name: str) -> StoredTensor:
        if name not in self._tensors:
            raise ModelFileError(f"{self.path}: no tensor for {name}")
        return self._tensors[name]

    def _fingerprint(self, headers: list[bytes]) -> str:
        digest = hashlib.sha256()
        for header in headers:
            digest.update(header)
        tokenizer = "tokenizer.model" if self.tokenizer.json_path is None else "tokenizer.json"
        for name in ("config.json", tokenizer):
            digest.update((self.path / name).read_bytes())
        for tensor in self._tensors.values():
            count = min(tensor.num_bytes, _SAMPLE_BYTES)
            digest.update(np.fromfile(tensor.path, np.uint8, count, offset=tensor.offset).tobytes())
        return digest.hexdigest()


def _family(path: Path, model_type: object) -> Family:
    for family in FAMILIES:
        if model_type in family.hf_model_types:
            return family
    known = ", ".join(name for family in FAMILIES for name in family.hf_model_types)
    raise UnsupportedModel(f"{path / 'config.json'}: model_type is {model_type!r}; supported: {known}")


def stored_tensors(path: Path) -> tuple[list[bytes], list[StoredTensor]]:
    """Headers and tensors of all shards, checked against the index if there is one."""
    if (path / _SINGLE).is_file():
        header, tensors = read_table(path / _SINGLE)
        return [header], tensors
    if not (path / _INDEX).is_file():
        if any(path.glob("*.bin")) or any(path.glob("*.pth")):
            raise UnsupportedModel(f"{path}: pickled weights can run code and are never opened; convert to safetensors")
        raise ModelFileError(f"{path}: neither {_SINGLE} nor {_INDEX} is there")
    where = read_json(path / _INDEX).get("weight_map")
    if not isinstance(where, dict) or not where:
        raise ModelFileError(f"{path / _INDEX}: weight_map is missing or empty")
    headers: list[bytes] = []
    found: list[StoredTensor] = []
    for shard in dict.fromkeys(where.values()):
        header, tensors = read_table(path / _plain_name(path, shard))
        headers.append(header)
        found += tensors
    shard_of = {tensor.name: tensor.path.name for tensor in found}
    for name, shard in where.items():
        if shard_of.get(name) != shard:
            raise ModelFileError(f"{path / shard}: tensor {name}, which the index promises, is not in it")
    return headers, found


def _plain_name(path: Path, shard: object) -> str:
    """Shard names come from a file that others wrote: only plain names, never paths, are followed."""
    if not isinstance(shard, str) or not shard.endswith(".safetensors") or any(c in shard for c in "/\\:\0"):
        raise ModelFileError(f"{path / _INDEX}: shard name {shard!r:.80} is not a plain .safetensors file name")
    return shard


def _by_neutral_name(path: Path, family: Family, tensors: list[StoredTensor]) -> dict[str, StoredTensor]:
    found: dict[str, StoredTensor] = {}
    strange: list[str] = []
    for tensor in tensors:
        if family.ignores_hf(tensor.name):
            continue
        neutral = family.neutral_hf(tensor.name)
        if neutral is None:
            strange.append(f"tensor {tensor.name:.80} is not part of a {family.name} model")
        elif tensor.type_name == "I64":
            strange.append(f"tensor {tensor.name:.80} has type I64, which no weight has")
        elif neutral in found:
            raise ModelFileError(f"{path}: tensor {tensor.name} is stored twice")
        else:
            found[neutral] = tensor
    if strange:
        raise UnsupportedModel.of(path, strange)
    return found
