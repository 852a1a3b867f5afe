"""The weights of a model by neutral name: what every kind of checkpoint is read through."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tenuto.checkpoint.blocks import Floats
from tenuto.checkpoint.weight_file import TensorSource
from tenuto.errors import ModelFileError

_MAX_NAMED = 20


def some(problems: Sequence[str]) -> list[str]:
    """The first few of many problems, and how many more there are."""
    more = len(problems) - _MAX_NAMED
    return [*problems[:_MAX_NAMED], *([f"and {more} more"] if more > 0 else [])]


class StoredModel:
    """What checkpoints of all formats have in common; see the `Checkpoint` protocol."""

    def __init__(self, path: Path, name: str, sources: Mapping[str, TensorSource]) -> None:
        self.path = path
        self.name = name
        self._sources = sources

    def tensor_names(self) -> list[str]:
        return list(self._sources)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._source(name).shape

    def stored_type(self, name: str) -> str:
        return self._source(name).type_name

    def stored_bytes(self, name: str) -> int:
        return self._source(name).num_bytes

    def read(self, name: str) -> Floats:
        return self._source(name).read()

    def fingerprint_with(self, parts: Iterable[bytes]) -> str:
        """64 hex digits over some bytes, e.g. of headers, and a sample of every tensor."""
        digest = hashlib.sha256()
        for part in parts:
            digest.update(part)
        for source in self._sources.values():
            digest.update(source.sample())
        return digest.hexdigest()

    def _source(self, name: str) -> TensorSource:
        if name not in self._sources:
            raise ModelFileError(f"{self.path}: no tensor for {name}")
        return self._sources[name]


@dataclass(frozen=True)
class Transformed:
    """A tensor that a file stores in a form of its own, undone as it is read; its shape stays."""

    source: TensorSource
    undo: Callable[[Floats], Floats]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.source.shape

    @property
    def type_name(self) -> str:
        return self.source.type_name

    @property
    def num_bytes(self) -> int:
        return self.source.num_bytes

    def read(self) -> Floats:
        return self.undo(self.source.read())

    def sample(self) -> bytes:
        return self.source.sample()
