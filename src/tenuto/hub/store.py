"""Models by id: from the cache, or fetched into it."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Protocol

import httpx

from tenuto.errors import CapacityError, HubError
from tenuto.hub.cache import ModelCache
from tenuto.hub.listing import Listing, RepoFile
from tenuto.hub.progress import SILENT, Progress
from tenuto.hub.reference import HubName, ModelReference
from tenuto.hub.selection import needed_files
from tenuto.hub.transfer import FileRequest, Retries, fetch_file, part_size

_SPARE_BYTES = 100_000_000  # a disk filled to the last byte stops more than us


class Hub(Protocol):
    """Where models come from."""

    @property
    def name(self) -> HubName: ...

    def list_files(self, repo: str, revision: str | None) -> Listing:
        """All files of a revision (None: the default branch). Raises HubError, naming the fix."""
        ...

    def address(self, listing: Listing, path: str) -> str:
        """The URL of one file."""
        ...

    def headers(self) -> dict[str, str]:
        """What every request carries; may hold a secret."""
        ...

    def refusal(self, repo: str) -> str:
        """What to tell somebody whom the hub does not let in."""
        ...


def free_bytes(path: Path) -> int:
    return shutil.disk_usage(path).free


class ModelStore:
    """The cache and the hubs behind it. A model that is in the cache is used as it is, without asking the hub.

    Args:
        offline: never ask a hub.
        free_bytes: free space of the disk that a path lies on.
    """

    def __init__(
        self,
        cache: ModelCache,
        hubs: Mapping[HubName, Hub],
        client: httpx.Client,
        retries: Retries,
        *,
        offline: bool = False,
        free_bytes: Callable[[Path], int] = free_bytes,
    ) -> None:
        self.cache = cache
        self.client = client
        self.offline = offline
        self._hubs = hubs
        self._retries = retries
        self._free_bytes = free_bytes

    def __enter__(self) -> ModelStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.client.close()

    def hub(self, reference: ModelReference) -> Hub:
        return self._hubs[reference.hub]

    def fetch(self, reference: ModelReference, progress: Progress = SILENT, *, refresh: bool = False) -> Path:
        """The path of a model, after fetching what of it is not in the cache yet.

        Args:
            refresh: ask the hub whether the revision has moved on, and get it if so.

        Raises:
            HubError: unknown, restricted, unreachable, broken off, or not here while offline; names the fix.
            UnsupportedModel: the repository holds only files that are not read.
            CapacityError: the disk has not the room, or no longer.
        """
        if not refresh and (path := self.cache.find(reference)):
            return path
        if self.offline:
            raise self._offline_error(reference)
        with self.cache.lock(reference, progress):
            if not refresh and (path := self.cache.find(reference)):
                return path  # another process has fetched it meanwhile
            try:
                return self._fetch(reference, progress)
            except OSError as error:
                raise self._disk_error(reference, error) from error

    def list_files(self, reference: ModelReference) -> Listing:
        """What the hub holds. Raises HubError."""
        if self.offline:
            raise self._offline_error(reference)
        return self.hub(reference).list_files(reference.repo, reference.revision)

    def request(self, listing: Listing, file: RepoFile, part: Path, target: Path) -> FileRequest:
        hub = self._hubs[listing.hub]
        return FileRequest(
            what=f"{listing.hub}:{listing.repo}",
            file=file,
            url=hub.address(listing, file.path),
            headers=hub.headers(),
            refusal=hub.refusal(listing.repo),
            part=part,
            target=target,
        )

    def fetch_to(self, request: FileRequest, progress: Progress = SILENT) -> None:
        """One file. Raises HubError."""
        fetch_file(self.client, request, progress, self._retries)

    def _fetch(self, reference: ModelReference, progress: Progress) -> Path:
        listing = self.list_files(reference)
        self.cache.keep_listing(listing)
        files = needed_files(reference, listing, lambda index: self._get(listing, index, SILENT).read_bytes())
        wanted = self.cache.missing(listing, files)
        done = sum(part_size(self.cache.part(listing, f), f.size) for f in wanted)
        total = sum(f.size for f in wanted)
        self._check_space(reference, total - done)
        progress.begin(str(reference), total, done)
        for file in wanted:
            self._get(listing, file, progress)
        self.cache.finish(reference, listing)
        return self.cache.path_of(listing, files)

    def _get(self, listing: Listing, file: RepoFile, progress: Progress) -> Path:
        target = self.cache.target(listing, file)
        if self.cache.missing(listing, (file,)):
            self.fetch_to(self.request(listing, file, self.cache.part(listing, file), target), progress)
        return target

    def _check_space(self, reference: ModelReference, num_bytes: int) -> None:
        free = self._free_bytes(self.cache.root)
        if num_bytes + _SPARE_BYTES > free:
            raise CapacityError(
                f"{reference} needs {num_bytes / 1e9:.2f} GB in {self.cache.root}, but only {free / 1e9:.2f} GB "
                "are free; make room (`tenuto models list --cache` shows what is there) or move TENUTO_CACHE"
            )

    def _disk_error(self, reference: ModelReference, error: OSError) -> HubError | CapacityError:
        """The disk filled up on the way, was taken away, or holds something else where the model belongs."""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return CapacityError(
                f"{reference}: no space is left in {self.cache.root}; what arrived is kept, so make room and try again"
            )
        where = error.filename or self.cache.root
        return HubError(
            f"{reference}: {where} cannot be written ({error.strerror or error}); set TENUTO_CACHE elsewhere"
        )

    def _offline_error(self, reference: ModelReference) -> HubError:
        return HubError(
            f"{self.cache.lacks(reference)}, and offline is set (TENUTO_OFFLINE or HF_HUB_OFFLINE): fetch it once "
            f"with `tenuto models download {reference}` while online, or give the path of a copy"
        )
