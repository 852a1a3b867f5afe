"""The safetensors container: a JSON table of tensors, then their bytes. Read with every length checked.

Layout as published by the safetensors project: 8 bytes header length, JSON header, data; the tensors
cover the data without gaps or overlap.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from tenuto.checkpoint.stand_ins import BEGINNING_BYTES, refuse_stand_in
from tenuto.checkpoint.weight_file import StoredTensor, WeightFile, check_extent, check_name, check_shape
from tenuto.errors import ModelFileError, UnsupportedModel

# A table row takes about 100 bytes: the limit is that of half a million tensors. Parsing takes some 20 times as much.
_MAX_HEADER_BYTES = 50_000_000
# Every type of whole bytes; which of them are read depends on what the tensor is for.
_ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "F8_E4M3FNUZ": 1, "F8_E5M2FNUZ": 1,
    "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "F64": 8, "I64": 8, "U64": 8,
}  # fmt: skip


def read_table(path: Path) -> tuple[bytes, list[StoredTensor]]:
    """The raw header and the tensors of one file.

    Raises:
        ModelFileError: missing, cut short or corrupt.
        UnsupportedModel: a tensor's type has parts of bytes; names the tensor.
    """
    weights = WeightFile(path)
    size = weights.size
    with weights.open() as file:
        beginning = file.read(BEGINNING_BYTES)
        refuse_stand_in(path, beginning)
        length = int.from_bytes(beginning[:8], "little")
        if size < 8 or length > min(size - 8, _MAX_HEADER_BYTES):
            raise ModelFileError(f"{path}: the header claims {length} bytes of a file of {size}; it is cut or corrupt")
        file.seek(8)
        raw = file.read(length)
    table = _parse(path, raw)
    table.pop("__metadata__", None)
    tensors = [_tensor(weights, name, entry, 8 + length) for name, entry in table.items()]
    end = 8 + length
    for tensor in sorted(tensors, key=lambda t: (t.offset, t.num_bytes)):
        if tensor.offset != end:
            raise ModelFileError(f"{tensor.label} begins at byte {tensor.offset}, expected {end}")
        check_extent(tensor)
        end = tensor.offset + tensor.num_bytes
    if end != size:
        raise ModelFileError(f"{path}: the tensors end at byte {end}, but the file has {size}")
    return raw, tensors


def _parse(path: Path, raw: bytes) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) < len(pairs):
            raise ModelFileError(f"{path}: the header names a tensor, or a key of one, twice")
        return table

    try:
        table = json.loads(raw, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path}: the header is not JSON") from error
    if not isinstance(table, dict):
        raise ModelFileError(f"{path}: the header is not a JSON object")
    return table


def _tensor(file: WeightFile, name: str, entry: Any, data_start: int) -> StoredTensor:
    check_name(file.path, "a tensor's name", name)
    match entry:
        case {"dtype": str(type_name), "shape": list(shape), "data_offsets": [int(begin), int(end)]} if all(
            type(n) is int and n >= 0 for n in (*shape, begin, end)
        ):
            pass
        case _:
            raise ModelFileError(f"{file.path}: tensor {name:.80} has a malformed entry")
    if type_name not in _ITEM_BYTES:
        raise UnsupportedModel(
            f"{file.path}: tensor {name:.80} has type {type_name!r:.80}; known are {', '.join(_ITEM_BYTES)}"
        )
    check_shape(file.path, name, tuple(shape))
    num_bytes = math.prod(shape) * _ITEM_BYTES[type_name]
    if end - begin != num_bytes:
        raise ModelFileError(
            f"{file.path}: tensor {name:.80} of shape {shape!s:.80} needs {_short(num_bytes)} bytes, "
            f"has {_short(end - begin)}"
        )
    return StoredTensor(file, name, tuple(shape), type_name, data_start + begin, num_bytes)


def _short(number: int) -> str:
    """JSON's whole numbers can have thousands of digits."""
    return str(number) if abs(number) < 1 << 64 else "absurdly many"
