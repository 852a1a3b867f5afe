"""The safetensors container: a JSON table of tensors, then their bytes. Read with every length checked.

Layout as published by the safetensors project: 8 bytes header length, JSON header, data; the tensors
cover the data without gaps or overlap.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenuto.errors import ModelFileError, UnsupportedModel

_MAX_HEADER_BYTES = 100_000_000
_ITEM_BYTES = {"F32": 4, "F16": 2, "BF16": 2, "I64": 8}  # whole numbers: buffers, never weights


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a safetensors file."""

    path: Path
    name: str
    shape: tuple[int, ...]
    type_name: str  # F32, F16, BF16; I64 of buffers
    offset: int  # from the start of the file
    num_bytes: int


def read_table(path: Path) -> tuple[bytes, list[StoredTensor]]:
    """The raw header and the tensors of one file.

    Raises:
        ModelFileError: missing, cut short or corrupt.
        UnsupportedModel: a tensor's type is not read; names the tensor.
    """
    if not path.is_file():
        raise ModelFileError(f"{path}: no such file; a shard of the model is missing: fetch it again")
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _MAX_HEADER_BYTES):
            raise ModelFileError(f"{path}: the header claims {length} bytes of a file of {size}; it is cut or corrupt")
        raw = file.read(length)
    table = _parse(path, raw)
    table.pop("__metadata__", None)
    tensors = [_tensor(path, name, entry, 8 + length) for name, entry in table.items()]
    end = 8 + length
    for tensor in sorted(tensors, key=lambda t: t.offset):
        if tensor.offset != end:
            raise ModelFileError(f"{path}: tensor {tensor.name} begins at byte {tensor.offset}, expected {end}")
        end = tensor.offset + tensor.num_bytes
        if end > size:
            raise ModelFileError(
                f"{path}: tensor {tensor.name} ends at byte {end}, but the file has {size}; "
                "it is cut short: fetch it again"
            )
    if end != size:
        raise ModelFileError(f"{path}: the tensors end at byte {end}, but the file has {size}")
    return raw, tensors


def _parse(path: Path, raw: bytes) -> dict[str, Any]:
    try:
        table = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path}: the header is not JSON") from error
    if not isinstance(table, dict):
        raise ModelFileError(f"{path}: the header is not a JSON object")
    return table


def _tensor(path: Path, name: str, entry: Any, data_start: int) -> StoredTensor:
    match entry:
        case {"dtype": str(type_name), "shape": list(shape), "data_offsets": [int(begin), int(end)]} if all(
            type(n) is int and n >= 0 for n in (*shape, begin, end)
        ):
            pass
        case _:
            raise ModelFileError(f"{path}: tensor {name} has a malformed entry")
    if type_name not in _ITEM_BYTES:
        raise UnsupportedModel(f"{path}: tensor {name} has type {type_name}; readable are {', '.join(_ITEM_BYTES)}")
    num_bytes = math.prod(shape) * _ITEM_BYTES[type_name]
    if end - begin != num_bytes:
        raise ModelFileError(f"{path}: tensor {name} of shape {shape} needs {num_bytes} bytes, has {end - begin}")
    return StoredTensor(path, name, tuple(shape), type_name, data_start + begin, num_bytes)
