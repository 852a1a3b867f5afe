"""The safetensors files of a Hugging Face directory: one, or shards with an index."""

from __future__ import annotations

from pathlib import Path

from tenuto.checkpoint.json_file import read_json
from tenuto.checkpoint.safetensors_format import read_table
from tenuto.checkpoint.weight_file import StoredTensor
from tenuto.errors import ModelFileError, UnsupportedModel

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_MAX_SHARDS = 10_000


def stored_tensors(path: Path) -> tuple[list[bytes], list[StoredTensor]]:
    """Headers and tensors of all weights in a directory, checked against the index if there is one.

    A shard may be a link that leaves the directory, as in the hub's cache; its *name*, which comes from a file that
    others wrote, may not.

    Raises:
        ModelFileError: no weights, a shard is missing or corrupt, or the index says otherwise than the shards.
        UnsupportedModel: pickled weights.
    """
    if (path / _SINGLE).exists():
        header, tensors = read_table(path / _SINGLE)
        return [header], tensors
    if not (path / _INDEX).exists():
        if any(path.glob("*.bin")) or any(path.glob("*.pth")):
            raise UnsupportedModel(f"{path}: pickled weights can run code and are never opened; convert to safetensors")
        if shards := sorted(p.name for p in path.glob("*.safetensors")):
            raise ModelFileError(f"{path}: {shards[0]!r:.80} is there, but {_INDEX}, which lists the shards, is not")
        raise ModelFileError(f"{path}: neither {_SINGLE} nor {_INDEX} is there")
    where = read_json(path / _INDEX).get("weight_map")
    if not isinstance(where, dict) or not where:
        raise ModelFileError(f"{path / _INDEX}: weight_map is missing or empty")
    shards = list(dict.fromkeys(_plain_name(path, shard) for shard in where.values()))
    if len(shards) > _MAX_SHARDS:
        raise ModelFileError(f"{path / _INDEX}: {len(shards)} shards, more than {_MAX_SHARDS}")
    headers: list[bytes] = []
    found: list[StoredTensor] = []
    for shard in shards:
        header, tensors = read_table(path / shard)
        headers.append(header)
        found += tensors
    _check_index(path, where, found)
    return headers, found


def _check_index(path: Path, where: dict[str, str], found: list[StoredTensor]) -> None:
    """The index and the shards must name the same tensors, each once."""
    shard_of: dict[str, str] = {}
    for tensor in found:
        shard = tensor.file.path.name
        if tensor.name in shard_of:
            raise ModelFileError(f"{tensor.label} is in {shard_of[tensor.name]} too")
        if tensor.name not in where:
            raise ModelFileError(f"{tensor.label} is not in {_INDEX}")
        shard_of[tensor.name] = shard
    for name, shard in where.items():
        if shard_of.get(name) != shard:
            raise ModelFileError(f"{path / shard}: tensor {name!r:.80}, which the index promises, is not in it")


def _plain_name(path: Path, shard: object) -> str:
    """Shard names come from a file that others wrote: only plain names, never paths, are followed."""
    if (
        not isinstance(shard, str)
        or not shard.endswith(".safetensors")
        or len(shard) > 255
        or not shard.isprintable()
        or any(c in shard for c in "/\\:\0")
    ):
        raise ModelFileError(f"{path / _INDEX}: shard name {shard!r:.80} is not a plain .safetensors file name")
    return shard
