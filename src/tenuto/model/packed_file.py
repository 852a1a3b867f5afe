"""The file that prepared weights are kept in, mapped into memory when it is opened.

    8 bytes   magic
    4         version of this layout    little-endian, as the next
    4         length of the header
    32        SHA-256 of the header
    ...       header: JSON, see `_Header`
    ...       zeros up to the next multiple of 4096
    ...       the tensors' bytes, each tensor on a multiple of 64 bytes from here

Nothing in a file is believed before it is checked: the header's length before it is read, the header's digest before it
is decoded, each tensor's place and size against the file's. The file is written whole under another name and renamed,
so that nobody ever opens a part; one that is open is never written to, so that a mapping stays what it was.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec
import numpy as np
import torch
from torch import Tensor

from tenuto.device.packing import ALIGNMENT, PackedLinear

_MAGIC = b"TENUTOPW"
_VERSION = 1
_PREFIX = struct.Struct("<8sII32s")
_PAGE = 4096
_MAX_HEADER_BYTES = 64_000_000
_CHUNK_BYTES = 1 << 22
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "int8": torch.int8}
_DTYPE_NAMES = {dtype: name for name, dtype in _DTYPES.items()}

Prepared: TypeAlias = Tensor | PackedLinear
_Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 48)]


class PackedFileError(Exception):
    """A file is not what it should be: says how. Whoever opens one goes on without it."""


class _Part(msgspec.Struct, frozen=True, array_like=True):
    """One tensor of the payload."""

    offset: _Size  # from the payload's beginning
    dtype: Literal["float32", "bfloat16", "float16", "int8", "uint8"]
    shape: Annotated[tuple[_Size, ...], msgspec.Meta(max_length=4)]

    @property
    def num_bytes(self) -> int:
        count = torch.uint8.itemsize if self.dtype == "uint8" else _DTYPES[self.dtype].itemsize
        for size in self.shape:
            count *= size
        return count


class _Table(msgspec.Struct, frozen=True, tag="table"):
    values: _Part


class _Linear(msgspec.Struct, frozen=True, tag="linear"):
    form: str
    in_features: _Size
    out_features: _Size
    packed: _Part
    bias: _Part | None


class _Header(msgspec.Struct, frozen=True):
    key: str  # what it was kept under
    model: str  # for people
    payload_bytes: _Size
    payload_digest: str  # SHA-256, hex
    entries: dict[str, _Table | _Linear]


@dataclass(frozen=True)
class Identity:
    """Of a file on disk: differs when it was written, replaced, copied or restored. Reading leaves it as it is."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Identity:
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


class PackedFile:
    """A file, checked and mapped read-only: its pages are shared by all processes that map it.

    Raises:
        PackedFileError: it is cut short, corrupt, of another version, or not ours alone to write.
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        # No link, which may lead anywhere; and a pipe must not be waited for.
        descriptor = os.open(path, os.O_RDONLY | _flag("O_NOFOLLOW") | _flag("O_NONBLOCK") | _flag("O_BINARY"))
        try:
            status = os.fstat(descriptor)
            _require_ours(status)
            self.identity = Identity.of(status)
            self._header, self._start = _read_header(descriptor, status.st_size)
            self._mapping = mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_READ)
        finally:
            os.close(descriptor)
        if hasattr(mmap, "MADV_WILLNEED"):
            self._mapping.madvise(mmap.MADV_WILLNEED)  # a disk reads ahead while the rest of the start goes on

    @property
    def key(self) -> str:
        return self._header.key

    @property
    def model(self) -> str:
        return self._header.model

    @property
    def num_bytes(self) -> int:
        return self.identity.size

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._header.entries)

    def payload_is_sound(self) -> bool:
        """Reads all of it."""
        digest, view = hashlib.sha256(), memoryview(self._mapping)[self._start :]
        for at in range(0, len(view), _CHUNK_BYTES):
            digest.update(view[at : at + _CHUNK_BYTES])
        return digest.hexdigest() == self._header.payload_digest

    def table(self, name: str) -> Tensor:
        """Raises PackedFileError if there is none of that name."""
        entry = self._header.entries.get(name)
        if not isinstance(entry, _Table):
            raise PackedFileError(f"{name:.80} is not in it")
        return self._tensor(entry.values)

    def linear(self, name: str) -> PackedLinear:
        """Raises PackedFileError if there is none of that name."""
        entry = self._header.entries.get(name)
        if not isinstance(entry, _Linear):
            raise PackedFileError(f"{name:.80} is not in it")
        bias = None if entry.bias is None else self._tensor(entry.bias)
        return PackedLinear(entry.form, entry.in_features, entry.out_features, self._tensor(entry.packed), bias)

    def _tensor(self, part: _Part) -> Tensor:
        first = self._start + part.offset
        memory = torch.from_numpy(np.asarray(_Mapped(self._mapping, first, part.num_bytes)))
        return (memory if part.dtype == "uint8" else memory.view(_DTYPES[part.dtype])).view(part.shape)


class _Mapped:
    """Bytes of a mapping for numpy. They are called writable, without which torch warns; a write would end the process,
    and nothing writes to weights."""

    def __init__(self, mapping: mmap.mmap, first: int, num_bytes: int) -> None:
        self._mapping = mapping  # lives as long as what is made of it
        address = np.frombuffer(mapping, np.uint8).ctypes.data + first
        self.__array_interface__ = {"version": 3, "data": (address, False), "typestr": "|u1", "shape": (num_bytes,)}


def header_of(path: Path) -> tuple[str, int]:
    """(the model's name, the file's size), for lists. Raises as `PackedFile` does."""
    descriptor = os.open(path, os.O_RDONLY | _flag("O_NOFOLLOW") | _flag("O_NONBLOCK") | _flag("O_BINARY"))
    try:
        status = os.fstat(descriptor)
        _require_ours(status)
        return _read_header(descriptor, status.st_size)[0].model, status.st_size
    finally:
        os.close(descriptor)


def is_ours(status: os.stat_result) -> bool:
    """Owned by this user, and nobody else may write to it. Where the system has no users in that sense: true."""
    return not hasattr(os, "geteuid") or (status.st_uid == os.geteuid() and not status.st_mode & 0o022)


def payload_size(parts: Mapping[str, Prepared]) -> int:
    """Bytes of the payload of a file of these."""
    return _laid_out(parts)[1]


def can_be_written(parts: Mapping[str, Prepared]) -> bool:
    """Whether all tensors are of a type that the file has, and lie in memory as it stores them."""
    return all(tensor.device.type == "cpu" and tensor.dtype in _STORED for tensor in _tensors(parts))


def write_packed(path: Path, key: str, model: str, parts: Mapping[str, Prepared]) -> None:
    """Write a new file and wait until it is on the disk. Raises OSError, and leaves what it has written so far."""
    entries, size, ordered = _laid_out(parts)
    draft = _Header(key, model, size, "0" * 64, entries)
    start = _payload_start(len(msgspec.json.encode(draft)))
    digest = hashlib.sha256()
    with path.open("wb") as file:
        file.truncate(start)
        file.seek(start)
        written = 0
        for offset, tensor in ordered:
            for piece in (bytes(offset - written), _bytes_of(tensor)):
                digest.update(piece)
                file.write(piece)
            written = offset + tensor.nbytes
        header = msgspec.json.encode(msgspec.structs.replace(draft, payload_digest=digest.hexdigest()))
        assert _payload_start(len(header)) == start
        file.seek(0)
        file.write(_PREFIX.pack(_MAGIC, _VERSION, len(header), hashlib.sha256(header).digest()) + header)
        file.flush()
        os.fsync(file.fileno())


_STORED = {*_DTYPE_NAMES, torch.uint8}


def _tensors(parts: Mapping[str, Prepared]) -> list[Tensor]:
    found = []
    for part in parts.values():
        found += [part] if isinstance(part, Tensor) else [t for t in (part.packed, part.bias) if t is not None]
    return found


def _laid_out(
    parts: Mapping[str, Prepared],
) -> tuple[dict[str, _Table | _Linear], int, Sequence[tuple[int, Tensor]]]:
    """(the header's entries, the payload's size, where each tensor goes)."""
    entries: dict[str, _Table | _Linear] = {}
    ordered: list[tuple[int, Tensor]] = []
    end = 0

    def place(tensor: Tensor) -> _Part:
        nonlocal end
        offset = -(-end // ALIGNMENT) * ALIGNMENT
        end = offset + tensor.nbytes
        ordered.append((offset, tensor))
        name = _DTYPE_NAMES.get(tensor.dtype, "uint8")
        return _Part(offset, name, tuple(tensor.shape))  # type: ignore[arg-type]

    for name, part in parts.items():
        if isinstance(part, Tensor):
            entries[name] = _Table(place(part))
        else:
            packed, bias = place(part.packed), None if part.bias is None else place(part.bias)
            entries[name] = _Linear(part.form, part.in_features, part.out_features, packed, bias)
    return entries, end, ordered


def _read_header(descriptor: int, size: int) -> tuple[_Header, int]:
    """(the header, where the payload begins), all of it checked."""
    prefix = os.read(descriptor, _PREFIX.size)
    if len(prefix) < _PREFIX.size:
        raise PackedFileError("it is cut short")
    magic, version, length, digest = _PREFIX.unpack(prefix)
    if magic != _MAGIC or version != _VERSION:
        raise PackedFileError("it is of another kind or version")
    if length > min(_MAX_HEADER_BYTES, size - _PREFIX.size):
        raise PackedFileError(f"its header of {length} bytes is longer than it can be")
    header = b""
    while len(header) < length and (more := os.read(descriptor, length - len(header))):
        header += more
    if hashlib.sha256(header).digest() != digest:
        raise PackedFileError("its header is corrupt")
    try:
        decoded = msgspec.json.decode(header, type=_Header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PackedFileError(f"its header cannot be read ({error})") from error
    start = _payload_start(length)
    if start + decoded.payload_bytes != size:
        raise PackedFileError(f"it has {size} bytes, its header says {start + decoded.payload_bytes}")
    for name, entry in decoded.entries.items():
        for part in (entry.values,) if isinstance(entry, _Table) else (entry.packed, entry.bias):
            if part is not None and (part.offset % ALIGNMENT or part.offset + part.num_bytes > decoded.payload_bytes):
                raise PackedFileError(f"{name:.80} lies outside of it")
    return decoded, start


def _payload_start(header_bytes: int) -> int:
    return -(-(_PREFIX.size + header_bytes) // _PAGE) * _PAGE


def _bytes_of(tensor: Tensor) -> memoryview:
    flat = tensor.detach().contiguous().view(-1)
    return (flat.view(torch.uint8) if flat.numel() else flat.to(torch.uint8)).numpy().data


def _require_ours(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise PackedFileError("it is not a file")
    if not is_ours(status):
        raise PackedFileError("it belongs to another user, or others may write to it")


def _flag(name: str) -> int:
    return int(getattr(os, name, 0))
