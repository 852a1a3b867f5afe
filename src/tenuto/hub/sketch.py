"""A model on a hub, as far as it can be known without its weights.

Small files are fetched; files of weights become as long as they are on the hub, but only their headers have content
(a sparse file takes no room on the disk). Whatever opens models opens a sketch as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tenuto.checkpoint.gguf_format import read_header
from tenuto.checkpoint.weight_file import WeightFile
from tenuto.errors import HubError, ModelFileError
from tenuto.hub.listing import Listing, RepoFile, checked_path
from tenuto.hub.reference import ModelReference
from tenuto.hub.selection import needed_files
from tenuto.hub.store import ModelStore
from tenuto.hub.transfer import fetch_range

_MAX_HEADER_BYTES = 128 << 20
_FIRST_BYTES = 8 << 20  # most GGUF headers, with their vocabularies
_MAX_SMALL_BYTES = 200_000_000
_ROPE_DIVISORS = "rope_freqs.weight"  # the one tensor that belongs to a GGUF model's config


@dataclass(frozen=True)
class Sketch:
    path: Path  # to open
    num_bytes: int  # of all files that running the model needs
    commit: str


def sketch_model(store: ModelStore, reference: ModelReference, folder: Path, first_bytes: int = _FIRST_BYTES) -> Sketch:
    """Write a sketch of a model into an empty folder.

    Args:
        first_bytes: how much of a GGUF file is read at first; more, if its header is longer.

    Raises:
        HubError, UnsupportedModel: as `ModelStore.fetch` does.
    """
    listing = store.list_files(reference)
    artist = _Artist(store, listing, folder, first_bytes)
    files = needed_files(reference, listing, lambda index: artist.fetch(index).read_bytes())
    for file in files:
        if file.path.endswith(".safetensors"):
            artist.draw_safetensors(file)
        elif file.path.lower().endswith(".gguf"):
            artist.draw_gguf(file)
        else:
            artist.fetch(file)
    is_gguf = files[0].path.lower().endswith(".gguf")
    path = artist.target(files[0]) if is_gguf else artist.folder
    return Sketch(path, sum(f.size for f in files), listing.commit)


class _Artist:
    def __init__(self, store: ModelStore, listing: Listing, folder: Path, first_bytes: int) -> None:
        self._store = store
        self._listing = listing
        self.folder = folder / listing.repo.rpartition("/")[2]
        self._parts = folder / "parts"
        self._first_bytes = first_bytes

    def target(self, file: RepoFile) -> Path:
        return self.folder / checked_path(self._listing.repo, file.path)

    def fetch(self, file: RepoFile) -> Path:
        """A small file, whole."""
        target = self.target(file)
        if file.size > _MAX_SMALL_BYTES:
            raise HubError(f"{self._listing.repo}: {file.path} has {file.size} bytes, more than such a file should")
        if not target.exists():
            part = self._parts / file.path.replace("/", "--")
            self._store.fetch_to(self._store.request(self._listing, file, part, target))
        return target

    def draw_safetensors(self, file: RepoFile) -> None:
        """The table of tensors: its length, then itself."""
        start = self._read(file, 0, min(8, file.size))
        length = int.from_bytes(start, "little")
        if length <= min(file.size - 8, _MAX_HEADER_BYTES):  # otherwise it is broken, as opening it will tell
            start += self._read(file, 8, 8 + length)
        self._write(file, start)

    def draw_gguf(self, file: RepoFile) -> None:
        """The header, whose length only reading it tells: more is fetched until it can be read."""
        begin = self._read(file, 0, min(self._first_bytes, file.size))
        while True:
            self._write(file, begin)
            try:
                header = read_header(WeightFile(self.target(file)))
                known = len(header.raw) <= len(begin)
            except ModelFileError:
                header, known = None, False
            if known or len(begin) >= min(file.size, _MAX_HEADER_BYTES):
                break
            begin += self._read(file, len(begin), min(2 * len(begin), file.size))
        if header is not None and (divisors := header.tensors.get(_ROPE_DIVISORS)) is not None:
            end = divisors.offset + divisors.num_bytes
            if divisors.num_bytes <= 1 << 20 and end > len(begin):
                self._write(file, self._read(file, divisors.offset, end), divisors.offset)

    def _read(self, file: RepoFile, begin: int, end: int) -> bytes:
        """Some bytes of a file on the hub. Raises HubError."""
        if begin >= end:
            return b""
        request = self._store.request(self._listing, file, self._parts, self._parts)
        return fetch_range(self._store.client, request, begin, end)

    def _write(self, file: RepoFile, content: bytes, at: int = 0) -> None:
        target = self.target(file)
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("r+b" if target.exists() else "wb") as out:
            out.seek(at)
            out.write(content)
            out.truncate(file.size)
