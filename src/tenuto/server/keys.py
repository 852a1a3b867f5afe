"""API keys: how they look, how they are kept, and whose a presented one is.

A key is `tenuto-ID-SECRET`. The id is public and finds the record; the secret is 160 random bits, so that one SHA-256
of the whole key is enough at rest: a slow hash would only protect secrets that can be guessed. Digests are compared
in constant time, against a fixed one where the id is unknown.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import structlog
from filelock import FileLock, Timeout

from tenuto.clock import Clock
from tenuto.errors import ConfigError

MAX_KEY_CHARS = 512
MIN_SINGLE_KEY_CHARS = 16
MAX_KEYS = 10_000
SINGLE_KEY_TENANT = "default"

_MAX_FILE_BYTES = 4 * 1024 * 1024
_LOCK_DEADLINE_S = 10.0
_RELOAD_PERIOD_S = 1.0
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NOBODY = hashlib.sha256(b"no key at all").hexdigest()

_log = structlog.get_logger("tenuto.server")


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is kept of a key."""

    id: str
    tenant: str
    sha256: str  # of the whole key, in hexadecimal
    created: str  # a date, ISO 8601


class _Contents(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    keys: tuple[KeyRecord, ...] = ()


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def make_key(tenant: str, created: str, entropy: Callable[[int], bytes]) -> tuple[str, KeyRecord]:
    """A fresh key, to be shown once, and what is kept of it.

    Args:
        entropy: so many random bytes, from the operating system; a seeded one only in tests.

    Raises ConfigError if the tenant's name is not 1 to 64 of `A-Z a-z 0-9 . _ -`, beginning with a letter or digit.
    """
    if not _TENANT.fullmatch(tenant):
        raise ConfigError("a tenant's name is 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-', the first a letter or digit")
    name = base64.b32encode(entropy(5)).decode().lower()
    secret = base64.b32encode(entropy(20)).decode().lower()
    key = f"tenuto-{name}-{secret}"
    return key, KeyRecord(id=name, tenant=tenant, sha256=_digest(key), created=created)


class KeyFile:
    """Key records in one JSON file, written whole or not at all. Raises ConfigError naming the file and the fix."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> tuple[KeyRecord, ...]:
        """The records. Refuses a file that anybody may write: whoever can add a key is let in."""
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                if stat.S_ISREG(status.st_mode) and status.st_mode & stat.S_IWOTH:
                    raise ConfigError(f"{self.path}: anybody may write this file; run chmod 600 on it")
                text = file.read(_MAX_FILE_BYTES + 1)
        except FileNotFoundError as error:
            raise ConfigError(f"{self.path}: no such key file; make one with `tenuto keys new`") from error
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot read the keys: {error.strerror or error}") from error
        if len(text) > _MAX_FILE_BYTES:
            raise ConfigError(f"{self.path}: larger than {_MAX_FILE_BYTES} bytes; that is no key file")
        try:
            records = msgspec.json.decode(text, type=_Contents).keys
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(f"{self.path}: not a key file: {error}; make one with `tenuto keys new`") from error
        self._check(records)
        return records

    def _check(self, records: tuple[KeyRecord, ...]) -> None:
        if len(records) > MAX_KEYS:
            raise ConfigError(f"{self.path}: {len(records)} keys; {MAX_KEYS} at most")
        if len({record.id for record in records}) < len(records):
            raise ConfigError(f"{self.path}: two keys have the same id")
        for number, record in enumerate(records):
            if not _TENANT.fullmatch(record.tenant) or not re.fullmatch(r"[0-9a-f]{64}", record.sha256):
                raise ConfigError(f"{self.path}: key number {number + 1} has no valid tenant and sha256")

    def add(self, record: KeyRecord) -> None:
        """Makes the file, readable by its owner only, if there is none."""
        with self._locked():
            records = self.read() if self.path.exists() else ()
            self._check((*records, record))
            self._write((*records, record))

    def revoke(self, key_id: str) -> KeyRecord:
        """Raises ConfigError if there is no key of that id."""
        with self._locked():
            records = self.read()
            found = next((record for record in records if record.id == key_id), None)
            if found is None:
                raise ConfigError(f"{self.path}: no key of the id {key_id[:40]!r}; `tenuto keys list` shows them")
            self._write(tuple(record for record in records if record.id != key_id))
            return found

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One writer at a time, among all processes."""
        lock = FileLock(f"{self.path}.lock", timeout=_LOCK_DEADLINE_S)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except Timeout as error:
            raise ConfigError(f"{self.path}: another process has locked the keys for {_LOCK_DEADLINE_S:g} s") from error
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot write the keys: {error.strerror or error}") from error
        try:
            yield
        finally:
            lock.release()

    def _write(self, records: tuple[KeyRecord, ...]) -> None:
        text = msgspec.json.format(msgspec.json.encode(_Contents(keys=records)), indent=1)
        try:
            handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=self.path.name)  # mode 600
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(text + b"\n")
                    file.flush()
                    os.fsync(file.fileno())
                Path(name).replace(self.path)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot write the keys: {error.strerror or error}") from error


@dataclass(frozen=True)
class _Seen:
    """A state of the file, by which a change of it is known."""

    inode: int
    modified_ns: int
    num_bytes: int


class ApiKeys:
    """Whose a presented key is. A changed file counts within a second; one that became unusable changes nothing.

    Args:
        file: keys by tenant.
        single: one key for the tenant `default`, as an environment variable gives it.

    Raises ConfigError if the file cannot be used, or the single key is short.
    """

    def __init__(self, *, file: KeyFile | None = None, single: str | None = None, clock: Clock) -> None:
        if single is not None and not MIN_SINGLE_KEY_CHARS <= len(single) <= MAX_KEY_CHARS:
            raise ConfigError(
                f"setting api_key: must have {MIN_SINGLE_KEY_CHARS} to {MAX_KEY_CHARS} characters; "
                "`tenuto keys new` makes good keys"
            )
        self._file = file
        self._single = None if single is None else _digest(single)
        self._clock = clock
        self._records: dict[str, KeyRecord] = {}
        self._seen: _Seen | None = None
        self._next_look_s = clock.now()
        if file is not None:
            self._seen = self._look(file)
            self._records = {record.id: record for record in file.read()}

    def __repr__(self) -> str:
        return f"ApiKeys({len(self._records)} of a file, {'one' if self._single else 'none'} of the environment)"

    def tenant_of(self, presented: str) -> str | None:
        """The tenant whose key this is, or None."""
        self._reload()
        if len(presented) > MAX_KEY_CHARS:
            return None
        digest = _digest(presented)
        parts = presented.split("-")
        record = self._records.get(parts[1]) if len(parts) == 3 else None
        # Both comparisons are made whatever the key looks like, so that the time tells nothing of it.
        is_recorded = hmac.compare_digest(digest, _NOBODY if record is None else record.sha256)
        is_single = hmac.compare_digest(digest, _NOBODY if self._single is None else self._single)
        if record is not None and is_recorded:
            return record.tenant
        return SINGLE_KEY_TENANT if is_single and self._single is not None else None

    def _reload(self) -> None:
        file, now = self._file, self._clock.now()
        if file is None or now < self._next_look_s:
            return
        self._next_look_s = now + _RELOAD_PERIOD_S
        seen = self._look(file)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._records = {record.id: record for record in file.read()}
        except ConfigError as error:
            _log.error("key_file_unusable", reason=str(error), kept=len(self._records))
        else:
            _log.info("keys_loaded", num_keys=len(self._records))

    @staticmethod
    def _look(file: KeyFile) -> _Seen | None:
        try:
            status = file.path.stat()
        except OSError:
            return None  # reading it says why
        return _Seen(status.st_ino, status.st_mtime_ns, status.st_size)
