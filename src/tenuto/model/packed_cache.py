"""Prepared weights on disk, so that a model is dequantised and packed once and not at every start.

    <root>/<key>.packed     see `packed_file`
    <root>/<key>.used       its time is that of the last use; says which file was found whole, see `_Noted`
    <root>/<key>.new        being written, or left by a process that died
    <root>/lock             held by the one process that writes

The cache is a help, never a condition: whatever is wrong with it, the model is read from its own files, with one
warning.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import filelock
import msgspec
import structlog

from tenuto.model.packed_file import (
    Identity,
    PackedFile,
    PackedFileError,
    Prepared,
    can_be_written,
    header_of,
    is_ours,
    payload_size,
    write_packed,
)

_SPARE_BYTES = 500_000_000  # of the disk: a cache must not be what fills it
_KEY = re.compile(r"[0-9a-f]{64}")


class _Noted(msgspec.Struct, frozen=True):
    """The identity of the file whose payload was last found whole.

    The header's digest is checked at every start, the payload's only when the file is not the one noted here: written
    by us, or read through once since. A file that was copied, restored or changed has another identity.
    """

    identity: Identity


class KeptWeights(msgspec.Struct, frozen=True):
    """One file of the cache, for lists."""

    model: str
    path: str
    num_bytes: int
    used: float  # seconds since 1970


@dataclass(frozen=True)
class PackedCacheLimits:
    max_bytes: int  # of all files together; those used longest ago go first
    spare_bytes: int = _SPARE_BYTES  # of the disk, to be left free


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


class PackedCache:
    """Files below one folder. Any number of processes may use it at once.

    Args:
        now: seconds since 1970, for the order of use.
        free_bytes: free space of the disk that a folder lies on.
    """

    def __init__(
        self,
        root: Path,
        limits: PackedCacheLimits,
        now: Callable[[], float],
        free_bytes: Callable[[Path], int] = _free_bytes,
    ) -> None:
        self.root = root
        self._limits = limits
        self._now = now
        self._free_bytes = free_bytes
        self._warned = False

    def find(self, key: str) -> PackedFile | None:
        """The file kept under a key (64 hex digits), or None."""
        path = self._path(key)
        try:
            if not self.root.is_dir():
                return None
            self._require_trust()
            found = PackedFile(path)
            if found.key != key:
                raise PackedFileError("it was kept under another name")
            if self._noted(key) != found.identity and not found.payload_is_sound():
                raise PackedFileError("its weights are corrupt")
        except FileNotFoundError:
            return None
        except (OSError, PackedFileError, _NotTrusted) as error:
            self.reject(key, error)
            return None
        self._note(key, found.identity)
        return found

    def reject(self, key: str, reason: Exception) -> None:
        """A file turned out not to be usable: it goes, if it can."""
        self._warn("cached weights cannot be used; the model's own files are read", reason, self._path(key))
        if isinstance(reason, PackedFileError):  # not for want of memory, of open files or of rights
            self._remove(key)

    def keep(self, key: str, model: str, parts: Mapping[str, Prepared]) -> None:
        """Write what was prepared, for the next start. Where that cannot be done, nothing is kept."""
        if not can_be_written(parts):
            return
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._require_trust()
            with filelock.FileLock(self.root / "lock", timeout=0):
                self._write(key, model, parts)
        except filelock.Timeout:
            return  # another process is writing, often the same: the next start finds it, or writes its own
        except (OSError, NotImplementedError, PackedFileError, _NotTrusted) as error:
            self._warn("weights are not cached: each start reads the model's own files", error, self.root)

    def list(self) -> list[KeptWeights]:
        """What is there, last used first. Files that are not usable are left out."""
        found = []
        for path in self._files():
            with contextlib.suppress(OSError, PackedFileError):
                model, num_bytes = header_of(path)
                found.append(KeptWeights(model, str(path), num_bytes, self._used(path)))
        return sorted(found, key=lambda kept: -kept.used)

    def clear(self) -> int:
        """Delete everything; returns the bytes freed. Processes that have a file mapped keep it until they end.

        Raises:
            OSError: something cannot be deleted.
        """
        freed = 0
        for path in [*self._files(), *self._leftovers()]:
            freed += path.lstat().st_size
            path.unlink(missing_ok=True)
            self._used_path(path).unlink(missing_ok=True)
        return freed

    def _write(self, key: str, model: str, parts: Mapping[str, Prepared]) -> None:
        """Under the lock: nobody else writes or evicts."""
        for path in self._leftovers():
            path.unlink(missing_ok=True)
        wanted = payload_size(parts)
        if wanted > self._limits.max_bytes or not self._make_room(key, wanted):
            return
        new = self._path(key).with_suffix(".new")
        try:
            os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            write_packed(new, key, model, parts)
            os.replace(new, self._path(key))
        except BaseException:
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)
            raise
        self._sync_folder()
        self._note(key, Identity.of(self._path(key).stat()))

    def _make_room(self, key: str, wanted: int) -> bool:
        """Evict the files used longest ago until there is room; False if that is not enough."""
        others = sorted((p for p in self._files() if p != self._path(key)), key=self._used)
        held = sum(p.lstat().st_size for p in others)
        while others and (held + wanted > self._limits.max_bytes or self._lacks_disk(wanted)):
            held -= others[0].lstat().st_size
            self._remove(others.pop(0).stem)
        return not self._lacks_disk(wanted)

    def _lacks_disk(self, wanted: int) -> bool:
        return self._free_bytes(self.root) < wanted + self._limits.spare_bytes

    def _require_trust(self) -> None:
        """What others may write to could be exchanged under us. Raises _NotTrusted."""
        status = self.root.stat()
        if not stat.S_ISDIR(status.st_mode):
            raise _NotTrusted("it is not a folder")
        if not is_ours(status):
            raise _NotTrusted("it belongs to another user, or others may write to it")

    def _noted(self, key: str) -> Identity | None:
        try:
            return msgspec.json.decode(self._used_path(self._path(key)).read_bytes(), type=_Noted).identity
        except (OSError, msgspec.MsgspecError):
            return None

    def _note(self, key: str, identity: Identity) -> None:
        """The file was found whole, and used now. If that cannot be written, it is only read through again."""
        path, now = self._used_path(self._path(key)), self._now()
        with contextlib.suppress(OSError):
            if self._noted(key) != identity:
                path.write_bytes(msgspec.json.encode(_Noted(identity)))
            os.utime(path, (now, now))

    def _used(self, path: Path) -> float:
        for file in (self._used_path(path), path):
            with contextlib.suppress(OSError):
                return file.stat().st_mtime
        return 0.0

    def _files(self) -> Iterator[Path]:
        return (p for p in self.root.glob("*.packed") if _KEY.fullmatch(p.stem))

    def _leftovers(self) -> Iterator[Path]:
        return (p for p in self.root.glob("*.new") if _KEY.fullmatch(p.stem))

    def _remove(self, key: str) -> None:
        with contextlib.suppress(OSError):  # it is no use, or in use where open files cannot be deleted
            self._path(key).unlink(missing_ok=True)
            self._used_path(self._path(key)).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        assert _KEY.fullmatch(key)
        return self.root / f"{key}.packed"

    def _used_path(self, path: Path) -> Path:
        return path.with_suffix(".used")

    def _sync_folder(self) -> None:
        """The new name is on the disk too, where a folder can be synced."""
        with contextlib.suppress(OSError):
            descriptor = os.open(self.root, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _warn(self, message: str, reason: Exception, path: Path) -> None:
        if self._warned:
            return
        self._warned = True
        why = reason.strerror or str(reason) if isinstance(reason, OSError) else str(reason)
        fix = "`tenuto models packed --clear` empties the cache; TENUTO_PACKED_CACHE moves it, or `off` does without"
        structlog.get_logger("tenuto.model").warning(message, reason=why, path=str(path), fix=fix)


class _NotTrusted(Exception):
    """The folder is not ours alone to write to."""
