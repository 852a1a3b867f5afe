"""The local cache of models: what lies where, and whether it is whole.

    <root>/locks/<hub>--<org>--<name>.lock
    <root>/<hub>/<org>/<name>/refs/<key>.json           what was asked for -> commit; written last
    <root>/<hub>/<org>/<name>/<commit>/listing.json     all files of that commit, with sizes
    <root>/<hub>/<org>/<name>/<commit>/<name>/...       the files, each there only when whole
    <root>/<hub>/<org>/<name>/<commit>/parts/...        what arrived of files that are not whole

A killed download leaves parts and no ref, so nothing half counts as whole and nothing is fetched twice.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import filelock
import msgspec

from tenuto.errors import HubError
from tenuto.hub.listing import Listing, RepoFile, checked_path
from tenuto.hub.progress import Progress
from tenuto.hub.reference import ModelReference
from tenuto.hub.selection import needed_files

_MAX_INDEX_BYTES = 50_000_000
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


class _Ref(msgspec.Struct, frozen=True):
    reference: ModelReference
    commit: str


class CachedModel(msgspec.Struct, frozen=True):
    """One model of the cache."""

    id: str  # as `--model` takes it
    path: str
    commit: str
    num_bytes: int
    whole: bool  # False: a download that has not been finished


class _NotThere(Exception):
    """A file that decides which others are needed is not in the cache."""


class ModelCache:
    """Files below one folder. Readers need no lock; whoever writes holds `lock`.

    Args:
        lock_deadline_s: how long to wait for another process that is writing the same model.
    """

    def __init__(self, root: Path, lock_deadline_s: float = 3600.0) -> None:
        self.root = root
        self._lock_deadline_s = lock_deadline_s

    def model_folder(self, listing: Listing) -> Path:
        return self._commit_folder(listing.hub, listing.repo, listing.commit) / listing.repo.rpartition("/")[2]

    def target(self, listing: Listing, file: RepoFile) -> Path:
        """Where a file lies once it is whole. Raises HubError for a name that leads elsewhere."""
        return self.model_folder(listing) / checked_path(listing.repo, file.path)

    def part(self, listing: Listing, file: RepoFile) -> Path:
        """Named by content: what is left of another version of the file is never taken for this one."""
        name = hashlib.sha256(f"{file.path}\0{file.size}\0{file.sha256}".encode()).hexdigest()[:32]
        return self._commit_folder(listing.hub, listing.repo, listing.commit) / "parts" / f"{name}.part"

    def path_of(self, listing: Listing, files: tuple[RepoFile, ...]) -> Path:
        """What to open: the GGUF file, the first if it has parts, or the folder."""
        if files[0].path.lower().endswith(".gguf"):
            return self.target(listing, files[0])
        return self.model_folder(listing)

    def missing(self, listing: Listing, files: tuple[RepoFile, ...]) -> list[RepoFile]:
        """Files that are not here, or not of their size."""
        return [f for f in files if not _is_whole(self.target(listing, f), f)]

    def find(self, reference: ModelReference) -> Path | None:
        """The model, if all of it is here."""
        listing = self._listing(reference)
        if listing is None:
            return None
        try:
            files = self._needed(reference, listing)
        except _NotThere:
            return None
        return None if self.missing(listing, files) else self.path_of(listing, files)

    def lacks(self, reference: ModelReference) -> str:
        """In words, what of a model is missing here."""
        listing = self._listing(reference)
        if listing is None:
            return f"{reference} is not in the cache at {self.root}"
        try:
            files = self._needed(reference, listing)
        except _NotThere as error:
            return f"of {reference}, {error} is missing in the cache at {self.root}"
        names = ", ".join(f.path for f in self.missing(listing, files)[:5])
        return f"of {reference}, {names} is missing in the cache at {self.root}"

    def keep_listing(self, listing: Listing) -> None:
        folder = self._commit_folder(listing.hub, listing.repo, listing.commit)
        _write_whole(folder / "listing.json", msgspec.json.encode(listing))

    def finish(self, reference: ModelReference, listing: Listing) -> None:
        """From now on this is what the reference means. All its files are here."""
        _write_whole(self._ref(reference), msgspec.json.encode(_Ref(reference, listing.commit)))
        parts = self._commit_folder(listing.hub, listing.repo, listing.commit) / "parts"
        if parts.is_dir() and not any(parts.iterdir()):
            parts.rmdir()

    @contextmanager
    def lock(self, reference: ModelReference, progress: Progress) -> Iterator[None]:
        """Held by the one process that writes a model; the system frees it when the process dies.

        Raises:
            HubError: another process held it until the deadline.
        """
        folder = self.root / "locks"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise HubError(
                f"the model cache {self.root} cannot be written ({error.strerror}); set TENUTO_CACHE to another folder"
            ) from error
        path = folder / f"{reference.hub}--{reference.repo.replace('/', '--')}.lock"
        lock = filelock.FileLock(path)
        try:
            try:
                lock.acquire(timeout=0)
            except filelock.Timeout:
                progress.note(f"another process is fetching {reference.hub}:{reference.repo}; waiting for it")
                lock.acquire(timeout=self._lock_deadline_s)
        except filelock.Timeout as error:
            raise HubError(
                f"another process has been busy with {reference.hub}:{reference.repo} "
                f"for {self._lock_deadline_s:.0f} s; if it is stuck, end it (it holds {path})"
            ) from error
        try:
            yield
        finally:
            lock.release()

    def models(self) -> list[CachedModel]:
        """All models here, also those that are not whole."""
        found = []
        for folder in sorted(p for p in self.root.glob("*/*/*") if p.parts[-3] in ("hf", "ms") and p.is_dir()):
            refs = [ref for p in sorted((folder / "refs").glob("*.json")) if (ref := _read_ref(p))]
            found += [self._described(ref.reference) for ref in refs]
            repo = f"{folder.parts[-3]}:{folder.parts[-2]}/{folder.parts[-1]}"
            for commit in sorted(p for p in folder.iterdir() if _COMMIT.fullmatch(p.name)):
                # What no id means any more, after the hub has moved on, or does not mean yet.
                parts = sum(p.stat().st_size for p in commit.glob("parts/*.part"))
                if commit.name not in {ref.commit for ref in refs}:
                    size = _size_of(commit)
                    found.append(CachedModel(f"{repo}@{commit.name}", str(commit), commit.name, size, whole=not parts))
                elif parts:
                    found.append(CachedModel(repo, str(commit), commit.name, parts, whole=False))
        return found

    def remove(self, reference: ModelReference) -> int:
        """Delete a model; returns the bytes freed.

        Of an id with a file or a tag that GGUF model, of one with a revision that commit, else all of the repository.

        Raises:
            HubError: it is not here.
        """
        folder = self._repo_folder(reference.hub, reference.repo)
        if reference.file or reference.tag:
            listing = self._listing(reference)
            if listing is None or self.find(reference) is None:
                raise HubError(self.lacks(reference))
            files = self._needed(reference, listing)
            self._ref(reference).unlink(missing_ok=True)
            for file in files:
                self.target(listing, file).unlink()
            return sum(f.size for f in files)
        if reference.revision is not None:
            listing = self._listing(reference)
            folder = self._commit_folder(reference.hub, reference.repo, listing.commit) if listing else folder / "none"
            for path in folder.parent.glob("refs/*.json"):
                if (ref := _read_ref(path)) is not None and ref.commit == folder.name:
                    path.unlink()
        if not folder.is_dir():
            raise HubError(self.lacks(reference))
        size = _size_of(folder)
        shutil.rmtree(folder)
        return size

    def _described(self, reference: ModelReference) -> CachedModel:
        listing, path = self._listing(reference), self.find(reference)
        if listing is None or path is None:
            return CachedModel(
                str(reference), str(self._repo_folder(reference.hub, reference.repo)), "", 0, whole=False
            )
        files = self._needed(reference, listing)
        return CachedModel(str(reference), str(path), listing.commit, sum(f.size for f in files), whole=True)

    def _repo_folder(self, hub: str, repo: str) -> Path:
        org, _, name = repo.partition("/")
        return self.root / hub / org / name

    def _commit_folder(self, hub: str, repo: str, commit: str) -> Path:
        return self._repo_folder(hub, repo) / commit

    def _ref(self, reference: ModelReference) -> Path:
        key = quote(f"{reference.revision or ''}@{reference.file or ''}:{reference.tag or ''}", safe="")
        return self._repo_folder(reference.hub, reference.repo) / "refs" / f"{key}.json"

    def _listing(self, reference: ModelReference) -> Listing | None:
        ref = _read_ref(self._ref(reference))
        commit = reference.revision if ref is None else ref.commit
        if commit is None or not _COMMIT.fullmatch(commit):
            return None
        path = self._commit_folder(reference.hub, reference.repo, commit) / "listing.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=Listing)
        except (OSError, msgspec.MsgspecError):
            return None  # as good as never fetched: it is fetched again

    def _needed(self, reference: ModelReference, listing: Listing) -> tuple[RepoFile, ...]:
        return needed_files(reference, listing, lambda index: self._read_index(listing, index))

    def _read_index(self, listing: Listing, file: RepoFile) -> bytes:
        path = self.target(listing, file)
        if not _is_whole(path, file) or file.size > _MAX_INDEX_BYTES:
            raise _NotThere(file.path)
        return path.read_bytes()


def _read_ref(path: Path) -> _Ref | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Ref)
    except (OSError, msgspec.MsgspecError):
        return None


def _is_whole(path: Path, file: RepoFile) -> bool:
    return path.is_file() and path.stat().st_size == file.size


def _size_of(path: Path) -> int:
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file())


def _write_whole(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
