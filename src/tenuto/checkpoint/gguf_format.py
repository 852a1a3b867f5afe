"""The GGUF container: header, metadata and tensor table, read with every length checked against the file.

Layout as in the GGUF specification of the ggml project (versions 2 and 3, little endian).
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenuto.errors import ModelFileError, UnsupportedModel

MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_MAX_DIMS = 4
_MAX_NAME_BYTES = 4096

# ggml type id -> (name, elements per block, bytes per block): only what we can dequantise.
TENSOR_TYPES = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    8: ("Q8_0", 32, 34),
    30: ("BF16", 1, 2),
}
# Names of types that exist but are not read, so that the message can say more than a number.
_OTHER_TYPES = {
    6: "Q5_0", 7: "Q5_1", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K",
    16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS",
    24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip


@dataclass(frozen=True)
class GGUFTensor:
    """One row of the tensor table."""

    name: str
    shape: tuple[int, ...]  # torch order: the last dimension is contiguous
    type_name: str
    offset: int  # from the start of the file
    num_bytes: int


@dataclass(frozen=True)
class GGUFHeader:
    """Everything before the tensor data."""

    metadata: dict[str, Any]
    tensors: dict[str, GGUFTensor]
    data_start: int


class _Cursor:
    """Reads little-endian values forward; running past the end is a ModelFileError."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self._data = data
        self.path = path
        self.at = 0
        self.size = len(data)

    def need(self, num_bytes: int, what: str) -> None:
        if num_bytes > self.size - self.at:
            raise ModelFileError(
                f"{self.path}: {what} needs {num_bytes} bytes at {self.at}, but the file ends at {self.size}; "
                "it is cut short or corrupt: fetch it again"
            )

    def unpack(self, code: str, what: str) -> Any:
        size = struct.calcsize("<" + code)
        self.need(size, what)
        (value,) = struct.unpack_from("<" + code, self._data, self.at)
        self.at += size
        return value

    def string(self, what: str) -> str:
        length = self.unpack("Q", what)
        self.need(length, what)
        raw = self._data[self.at : self.at + length]
        self.at += length
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise ModelFileError(f"{self.path}: {what} is not UTF-8") from error

    def value(self, kind: int, what: str) -> Any:
        if kind in _SCALARS:
            return self.unpack(_SCALARS[kind], what)
        if kind == _STRING:
            return self.string(what)
        if kind != _ARRAY:
            raise ModelFileError(f"{self.path}: {what} has value type {kind}, which GGUF does not define")
        item_kind, count = self.unpack("I", what), self.unpack("Q", what)
        if item_kind == _STRING:
            self.need(8 * count, what)
            return [self.string(f"{what}[{i}]") for i in range(count)]
        if item_kind not in _SCALARS:
            raise UnsupportedModel(f"{self.path}: {what} is an array of value type {item_kind}, which is not read")
        code = f"<{count}{_SCALARS[item_kind]}"
        self.need(count * struct.calcsize(_SCALARS[item_kind]), what)
        values = list(struct.unpack_from(code, self._data, self.at))
        self.at += struct.calcsize(code)
        return values


def read_header(data: mmap.mmap, path: Path) -> GGUFHeader:
    """Parse and check the header. Nothing is allocated in proportion to what the file merely claims.

    Raises:
        ModelFileError: cut short, corrupt, or tensors that do not fit the file.
        UnsupportedModel: a version, byte order or tensor type that is not read; names the tensor.
    """
    cursor = _Cursor(data, path)
    cursor.need(24, "the header")
    if data[:4] != MAGIC:
        raise ModelFileError(f"{path}: not a GGUF file (it does not begin with {MAGIC.decode()})")
    cursor.at = 4
    version = cursor.unpack("I", "version")
    if version not in (2, 3):
        raise UnsupportedModel(f"{path}: GGUF version {version} is not read (2 and 3, little endian, are)")
    num_tensors, num_entries = cursor.unpack("Q", "tensor count"), cursor.unpack("Q", "metadata count")
    cursor.need(24 * num_tensors + 13 * num_entries, f"a table of {num_tensors} tensors and {num_entries} entries")
    metadata: dict[str, Any] = {}
    for _ in range(num_entries):
        key = cursor.string("a metadata key")
        metadata[key] = cursor.value(cursor.unpack("I", key), key)
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise ModelFileError(f"{path}: general.alignment is {alignment}, not a power of two")
    rows = [_read_row(cursor) for _ in range(num_tensors)]
    data_start = -(-cursor.at // alignment) * alignment
    tensors: dict[str, GGUFTensor] = {}
    for name, shape, type_id, offset in rows:
        if name in tensors:
            raise ModelFileError(f"{path}: tensor {name} is listed twice")
        tensors[name] = _place(path, name, shape, type_id, data_start + offset)
    _check_extents(path, tensors, len(data))
    return GGUFHeader(metadata, tensors, data_start)


def _read_row(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    name = cursor.string("a tensor name")
    if len(name) > _MAX_NAME_BYTES:
        raise ModelFileError(f"{cursor.path}: a tensor name of {len(name)} characters")
    num_dims = cursor.unpack("I", name)
    if not 1 <= num_dims <= _MAX_DIMS:
        raise ModelFileError(f"{cursor.path}: tensor {name} has {num_dims} dimensions (1 to {_MAX_DIMS} exist)")
    dims = tuple(cursor.unpack("Q", name) for _ in range(num_dims))
    return name, dims[::-1], cursor.unpack("I", name), cursor.unpack("Q", name)


def _place(path: Path, name: str, shape: tuple[int, ...], type_id: int, offset: int) -> GGUFTensor:
    """Types are read per tensor; the file's label (general.file_type) is never trusted."""
    if type_id not in TENSOR_TYPES:
        other = _OTHER_TYPES.get(type_id, "unknown")
        readable = ", ".join(name for name, _, _ in TENSOR_TYPES.values())
        raise UnsupportedModel(f"{path}: tensor {name} has type {other} (id {type_id}); readable are {readable}")
    type_name, per_block, block_bytes = TENSOR_TYPES[type_id]
    if 0 in shape:
        raise ModelFileError(f"{path}: tensor {name} is empty: {list(shape)}")
    if shape[-1] % per_block:
        raise ModelFileError(
            f"{path}: tensor {name} has rows of {shape[-1]} elements, "
            f"not a multiple of {type_name}'s block of {per_block}"
        )
    return GGUFTensor(name, shape, type_name, offset, math.prod(shape) // per_block * block_bytes)


def _check_extents(path: Path, tensors: dict[str, GGUFTensor], file_size: int) -> None:
    end, before = 0, ""
    for tensor in sorted(tensors.values(), key=lambda t: t.offset):
        if tensor.offset + tensor.num_bytes > file_size:
            raise ModelFileError(
                f"{path}: tensor {tensor.name} ends at byte {tensor.offset + tensor.num_bytes}, but the file has "
                f"{file_size}; it is cut short or corrupt: fetch it again"
            )
        if tensor.offset < end:
            raise ModelFileError(f"{path}: tensors {before} and {tensor.name} overlap")
        end, before = tensor.offset + tensor.num_bytes, tensor.name
