"""The GGUF container: header, metadata and tensor table, read with every length checked against the file.

Layout as in the GGUF specification of the ggml project (versions 2 and 3, little endian).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from tenuto.checkpoint.quant_types import STORED_TYPES
from tenuto.checkpoint.weight_file import StoredTensor, WeightFile, check_extent, check_name, check_shape
from tenuto.errors import ModelFileError, UnsupportedModel

MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_MAX_DIMS = 4
_MAX_ALIGNMENT = 1 << 20
_READ_BYTES = 1 << 20
_MAX_ITEMS = 4_000_000  # of a list: the longest known is one of 600,000 merges
# The largest vocabularies take 20 MB with their merges. A list of small numbers takes eight times its bytes.
_MAX_HEADER_BYTES = 100_000_000

# ggml type id -> name; those in STORED_TYPES are read, the others only named.
_TYPE_NAMES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K",
    12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip


@dataclass(frozen=True)
class GGUFHeader:
    """Everything before the tensor data of one file."""

    metadata: dict[str, Any]
    tensors: dict[str, StoredTensor]
    raw: bytes


class _Cursor:
    """Reads little-endian values forward; running past the end is a ModelFileError.

    What is held of the file is what was asked for, rounded up to a megabyte.
    """

    def __init__(self, file: BufferedIOBase, path: Path, size: int) -> None:
        self._file = file
        self.path = path
        self.size = size
        self.data = bytearray()
        self.at = 0

    def need(self, num_bytes: int, what: str) -> None:
        """Raises ModelFileError if fewer bytes are left; reads none."""
        if num_bytes > self.size - self.at:
            raise ModelFileError(
                f"{self.path}: {what} needs {num_bytes} bytes at {self.at}, but the file ends at {self.size}; "
                "it is cut short or corrupt: fetch it again"
            )

    def unpack(self, code: str, what: str) -> Any:
        """One value of a struct code, or several."""
        size = struct.calcsize("<" + code)
        self._fetch(size, what)
        values = struct.unpack_from("<" + code, self.data, self.at)
        self.at += size
        return values[0] if len(values) == 1 else values

    def string(self, what: str) -> str:
        length = self.unpack("Q", what)
        self._fetch(length, what)
        raw = self.data[self.at : self.at + length]
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
        item_kind, count = self.unpack("IQ", what)
        if count > _MAX_ITEMS:
            raise ModelFileError(f"{self.path}: {what} has {count} items; no list has more than {_MAX_ITEMS}")
        if item_kind == _STRING:
            self.need(8 * count, what)
            return self._strings(count, f"an item of {what}")
        if item_kind not in _SCALARS:
            raise UnsupportedModel(f"{self.path}: {what} is an array of value type {item_kind}, which is not read")
        size = count * struct.calcsize(_SCALARS[item_kind])
        self._fetch(size, what)
        values = list(struct.unpack_from(f"<{count}{_SCALARS[item_kind]}", self.data, self.at))
        self.at += size
        return values

    def _strings(self, count: int, what: str) -> list[str]:
        """As `string`, many times: a vocabulary and its merges are hundreds of thousands."""
        found, length_at = [], struct.Struct("<Q").unpack_from
        for _ in range(count):
            self._fetch(8, what)
            (length,) = length_at(self.data, self.at)
            self.at += 8
            end = self.at + length
            if end > len(self.data):
                self._fetch(length, what)
            try:
                found.append(self.data[self.at : end].decode())
            except UnicodeDecodeError as error:
                raise ModelFileError(f"{self.path}: {what} is not UTF-8") from error
            self.at = end
        return found

    def _fetch(self, num_bytes: int, what: str) -> None:
        """Make sure that the next bytes are in `data`."""
        end = self.at + num_bytes
        if end <= len(self.data):
            return
        self.need(num_bytes, what)
        if end > _MAX_HEADER_BYTES:
            raise ModelFileError(f"{self.path}: {what} lies beyond the first {_MAX_HEADER_BYTES} bytes; no header does")
        self.data += self._file.read(max(_READ_BYTES, end - len(self.data)))
        if end > len(self.data):
            raise ModelFileError(f"{self.path}: the file shrinks while it is read")


def read_header(file: WeightFile) -> GGUFHeader:
    """Parse and check the header. Nothing is allocated in proportion to what the file merely claims.

    Raises:
        ModelFileError: cut short, corrupt, or tensors that do not fit the file.
        UnsupportedModel: a version, byte order or tensor type that is not read; names the tensor.
    """
    with file.open() as opened:
        cursor = _Cursor(opened, file.path, file.size)
        metadata, rows = _read_tables(cursor)
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= _MAX_ALIGNMENT or alignment & (alignment - 1):
        raise ModelFileError(f"{file.path}: general.alignment is {alignment!r:.80}, not a power of two")
    data_start = -(-cursor.at // alignment) * alignment
    tensors: dict[str, StoredTensor] = {}
    for name, shape, type_id, offset in rows:
        if name in tensors:
            raise ModelFileError(f"{file.path}: tensor {name:.80} is listed twice")
        tensors[name] = _place(file, name, shape, type_id, data_start + offset)
    _check_extents(tensors)
    return GGUFHeader(metadata, tensors, bytes(cursor.data[: cursor.at]))


_Row = tuple[str, tuple[int, ...], int, int]  # name, shape, type id, offset from the start of the data


def read_architecture(file: WeightFile) -> object:
    """The file's `general.architecture`, or None; reads no further, and writers put it first.

    Raises as `read_header`.
    """
    with file.open() as opened:
        cursor = _Cursor(opened, file.path, file.size)
        _, num_entries = _read_counts(cursor)
        for _ in range(num_entries):
            key = _name(cursor, "a metadata key")
            value = cursor.value(cursor.unpack("I", key), key)
            if key == "general.architecture":
                return value
    return None


def _read_counts(cursor: _Cursor) -> tuple[int, int]:
    """How many tensors and how many metadata entries follow."""
    cursor.need(24, "the header")
    magic, version, num_tensors, num_entries = cursor.unpack("4sIQQ", "the header")
    if magic != MAGIC:
        raise ModelFileError(f"{cursor.path}: not a GGUF file (it does not begin with {MAGIC.decode()})")
    if version not in (2, 3):
        raise UnsupportedModel(f"{cursor.path}: GGUF version {version} is not read (2 and 3, little endian, are)")
    cursor.need(24 * num_tensors + 13 * num_entries, f"a table of {num_tensors} tensors and {num_entries} entries")
    return num_tensors, num_entries


def _read_tables(cursor: _Cursor) -> tuple[dict[str, Any], list[_Row]]:
    num_tensors, num_entries = _read_counts(cursor)
    metadata: dict[str, Any] = {}
    for _ in range(num_entries):
        key = _name(cursor, "a metadata key")
        if key in metadata:
            raise ModelFileError(f"{cursor.path}: {key:.80} is given twice")
        metadata[key] = cursor.value(cursor.unpack("I", key), key)
    return metadata, [_read_row(cursor) for _ in range(num_tensors)]


def _name(cursor: _Cursor, what: str) -> str:
    name = cursor.string(what)
    check_name(cursor.path, what, name)
    return name


def _read_row(cursor: _Cursor) -> _Row:
    name = _name(cursor, "a tensor name")
    num_dims = cursor.unpack("I", name)
    if not 1 <= num_dims <= _MAX_DIMS:
        raise ModelFileError(f"{cursor.path}: tensor {name:.80} has {num_dims} dimensions (1 to {_MAX_DIMS} exist)")
    dims = tuple(cursor.unpack("Q", name) for _ in range(num_dims))
    return name, dims[::-1], cursor.unpack("I", name), cursor.unpack("Q", name)


def _place(file: WeightFile, name: str, shape: tuple[int, ...], type_id: int, offset: int) -> StoredTensor:
    """Types are read per tensor; the file's label (general.file_type) is never trusted."""
    stored = STORED_TYPES.get(_TYPE_NAMES.get(type_id, ""))
    if stored is None:
        other = _TYPE_NAMES.get(type_id, "unknown")
        raise UnsupportedModel(
            f"{file.path}: tensor {name:.80} has type {other} (id {type_id}); readable are {', '.join(STORED_TYPES)}"
        )
    check_shape(file.path, name, shape)
    if 0 in shape:
        raise ModelFileError(f"{file.path}: tensor {name:.80} is empty: {list(shape)}")
    if shape[-1] % stored.block_elements:
        raise ModelFileError(
            f"{file.path}: tensor {name:.80} has rows of {shape[-1]} elements, "
            f"not a multiple of {stored.name}'s block of {stored.block_elements}"
        )
    return StoredTensor(file, name, shape, stored.name, offset, stored.num_bytes(shape))


def _check_extents(tensors: dict[str, StoredTensor]) -> None:
    before: StoredTensor | None = None
    for tensor in sorted(tensors.values(), key=lambda t: t.offset):
        check_extent(tensor)
        if before is not None and tensor.offset < before.offset + before.num_bytes:
            raise ModelFileError(f"{tensor.file.path}: tensors {before.name:.80} and {tensor.name:.80} overlap")
        before = tensor
