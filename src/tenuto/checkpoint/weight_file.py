"""Files of weights, and the tensors in them. Both formats come down to these."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tenuto.checkpoint.blocks import Floats
from tenuto.checkpoint.quant_types import STORED_TYPES, read_elements
from tenuto.errors import ModelFileError, UnsupportedModel

_SAMPLE_BYTES = 256
_MAX_NAME_CHARACTERS = 4096
_MAX_DIMS = 8  # more than any weight has, fewer than numpy can do

# Whole numbers of quantised checkpoints: read as they are, never as weights of their own.
WHOLE_TYPES = {"U8": "<u1", "I8": "<i1", "I16": "<i2", "I32": "<i4", "I64": "<i8"}


class WeightFile:
    """A file that is opened for each read (never mapped: a mapping of a file that shrinks ends the process).

    Raises:
        ModelFileError: absent, not a file, or not ours to read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            # A pipe would wait for ever to be written to.
            problem = "not a file" if path.exists() else "no such file; a part of the model is missing: fetch it again"
            raise ModelFileError(f"{path}: {problem}")
        self._identity: tuple[int, int] | None = None
        with self.open() as file:
            self._identity = _identity(file)
            self.size = self._identity[0]

    @contextmanager
    def open(self) -> Iterator[BufferedIOBase]:
        """Raises ModelFileError if it cannot be read, or is no longer the file that was opened first."""
        try:
            with self.path.open("rb") as file:
                if self._identity not in (None, _identity(file)):
                    raise self.changed()
                yield file
        except OSError as error:
            raise ModelFileError(f"{self.path}: cannot be read ({error.strerror or error})") from error

    def changed(self) -> ModelFileError:
        return ModelFileError(f"{self.path}: the file changed since it was opened; open the model again")


def _identity(file: BufferedIOBase) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


class TensorSource(Protocol):
    """What a weight can be read from: a stored tensor, or what is made of some."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def type_name(self) -> str:
        """How it is stored, e.g. "Q4_K" or "GPTQ 4-bit"."""
        ...

    @property
    def num_bytes(self) -> int:
        """As stored."""
        ...

    def read(self) -> Floats:
        """The weight as a new float32 array of `shape`. Raises ModelFileError; names file and tensor."""
        ...

    def sample(self) -> bytes:
        """The first few stored bytes, for the fingerprint. Raises ModelFileError as `read` does."""
        ...


@dataclass(frozen=True)
class StoredTensor:
    """One row of a file's table of tensors; its extent lies inside the file."""

    file: WeightFile
    name: str
    shape: tuple[int, ...]  # torch order: the last dimension is contiguous
    type_name: str
    offset: int  # from the start of the file
    num_bytes: int

    def read(self) -> Floats:
        if self.type_name not in STORED_TYPES:
            raise UnsupportedModel(f"{self.label}: type {self.type_name} is not read")
        with self.file.open() as file:
            try:
                values = read_elements(file, self.offset, self.type_name, self.shape)
            except EOFError as error:
                raise self.file.changed() from error
            except FloatingPointError as error:
                raise self.not_finite() from error
        return values

    def read_whole(self) -> npt.NDArray[np.integer]:
        """The whole numbers of a quantised checkpoint, as stored."""
        assert self.type_name in WHOLE_TYPES, self.type_name
        out = np.empty(self.shape, WHOLE_TYPES[self.type_name])
        with self.file.open() as file:
            file.seek(self.offset)
            if file.readinto(out.reshape(-1).view(np.uint8).data) != out.nbytes:
                raise self.file.changed()
        return out

    def sample(self) -> bytes:
        with self.file.open() as file:
            file.seek(self.offset)
            return file.read(min(self.num_bytes, _SAMPLE_BYTES))

    @property
    def label(self) -> str:
        """For messages."""
        return f"{self.file.path}: tensor {self.name:.80}"

    def not_finite(self) -> ModelFileError:
        """One weight that is infinite or no number makes nonsense of all that follows."""
        return ModelFileError(f"{self.label} holds values that are not numbers; it is corrupt: fetch it again")


def check_shape(path: Path, name: str, shape: tuple[int, ...]) -> None:
    """Raise ModelFileError for a shape that no weight has."""
    if len(shape) > _MAX_DIMS:
        raise ModelFileError(f"{path}: tensor {name:.80} has shape {list(shape)!s:.80}, which no weight has")


def check_name(path: Path, what: str, name: str) -> None:
    """Raise ModelFileError for a name that no file needs: messages show names, terminals obey control characters."""
    if len(name) > _MAX_NAME_CHARACTERS or not name.isprintable():
        raise ModelFileError(f"{path}: {what} is {name!r:.80}, which no file calls anything")


def check_extent(tensor: StoredTensor) -> None:
    """Raise ModelFileError for a tensor that its file is too short for."""
    end = tensor.offset + tensor.num_bytes
    if end > tensor.file.size:
        raise ModelFileError(
            f"{tensor.label} ends at byte {end}, but the file has {tensor.file.size}; "
            "it is cut short or corrupt: fetch it again"
        )
