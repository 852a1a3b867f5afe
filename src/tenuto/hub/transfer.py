"""One file over HTTP: resumed where it broke off, checked, and only then given its name."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx

from tenuto.errors import HubError
from tenuto.hub import web
from tenuto.hub.listing import RepoFile
from tenuto.hub.progress import Progress

_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)$")
_TRANSIENT = (408, 425, 429, 500, 502, 503, 504)


@dataclass(frozen=True, kw_only=True)
class Retries:
    """How often a broken transfer is taken up again without any progress, and how long to wait before."""

    max_fruitless: int = 4
    first_delay_s: float = 0.5  # doubled each time
    sleep: Callable[[float], None]


@dataclass(frozen=True, kw_only=True)
class FileRequest:
    """What to get, from where, under which name."""

    what: str  # for messages: the repository
    file: RepoFile
    url: str
    headers: dict[str, str]
    refusal: str  # what to say when the hub does not let us
    part: Path  # grows while bytes arrive; stays behind when the transfer breaks off
    target: Path  # exists only whole


class _Broken(Exception):
    """The connection broke off; what arrived is kept."""


def fetch_file(client: httpx.Client, request: FileRequest, progress: Progress, retries: Retries) -> None:
    """Get one file. Bytes that a former attempt left in `part` are not fetched again.

    Raises:
        HubError: refused, gone, of another size or content than the hub lists, or broken off too often.
    """
    request.part.parent.mkdir(parents=True, exist_ok=True)
    request.target.parent.mkdir(parents=True, exist_ok=True)
    resumed = _clip(request.part, request.file.size, progress) > 0
    _receive_all(client, request, progress, retries)
    if not _has_digest(request.part, request.file.sha256):
        progress.advance(-request.file.size)
        request.part.unlink()
        if not resumed:
            raise HubError(f"{request.what}: {request.file.path} arrived with other content than the hub lists")
        progress.note(f"{request.file.path}: what was left of a former download is damaged; starting over")
        fetch_file(client, request, progress, retries)
        return
    os.replace(request.part, request.target)


def fetch_range(client: httpx.Client, request: FileRequest, begin: int, end: int) -> bytes:
    """The bytes from `begin` to before `end` of a file, in one try.

    Raises:
        HubError: no answer, a refusal, or a shorter file than the hub lists.
    """
    headers = {**request.headers, "Range": f"bytes={begin}-{end - 1}"}
    body = bytearray()
    try:
        with client.stream("GET", request.url, headers=headers) as response:
            _check_status(response, request)
            skip = begin if response.status_code == 200 else 0
            for piece in response.iter_bytes():
                body += piece
                if len(body) >= skip + end - begin:
                    break  # a server without ranges would send all of it
    except _Broken as error:
        raise HubError(f"{request.what}: the hub is busy ({error}); try again later") from error
    except httpx.HTTPError as error:
        raise web.unreachable(request.what, request.url, error) from error
    found = bytes(body[skip : skip + end - begin])
    if response.status_code == 416 or len(found) != end - begin:
        raise HubError(f"{request.what}: {request.file.path} is shorter than the hub lists")
    return found


def part_size(part: Path, size: int) -> int:
    """Bytes of a file of `size` that lie in its part file already."""
    return min(part.stat().st_size, size) if part.is_file() else 0


def _clip(part: Path, size: int, progress: Progress) -> int:
    """Cut a part file that is longer than the file could be; returns its size."""
    if part.is_file() and part.stat().st_size > size:
        part.unlink()
        progress.advance(-size)
    return part_size(part, size)


def _receive_all(client: httpx.Client, request: FileRequest, progress: Progress, retries: Retries) -> None:
    fruitless, delay = 0, retries.first_delay_s
    furthest = part_size(request.part, request.file.size)
    while furthest < request.file.size or not request.part.exists():
        try:
            _receive(client, request, progress)
        except (_Broken, httpx.TransportError) as error:
            # Only ground never reached before counts: a server that always begins anew must not keep us for ever.
            moved = part_size(request.part, request.file.size) > furthest
            fruitless, delay = (0, retries.first_delay_s) if moved else (fruitless + 1, delay * 2)
            if fruitless >= retries.max_fruitless:
                if isinstance(error, httpx.HTTPError):
                    broken = web.unreachable(request.what, request.url, error)
                    raise HubError(f"{broken}; what arrived is kept") from error
                raise HubError(
                    f"{request.what}: {request.file.path} breaks off again and again ({error}); what arrived is kept, "
                    "so try again later"
                ) from error
            progress.note(f"{request.file.path}: the connection broke; going on in {delay:.1f} s")
            retries.sleep(delay)
        furthest = max(furthest, part_size(request.part, request.file.size))


def _receive(client: httpx.Client, request: FileRequest, progress: Progress) -> None:
    """One response's worth of the file, appended to the part. Raises _Broken, httpx.TransportError, HubError."""
    at, size = part_size(request.part, request.file.size), request.file.size
    headers = {**request.headers, **({"Range": f"bytes={at}-"} if at else {})}
    with client.stream("GET", request.url, headers=headers) as response:
        _check_status(response, request)
        _check_size(response, request, at)
        if at and response.status_code == 200:
            progress.advance(-at)  # the server does not know ranges: from the start, then
            at = 0
        with request.part.open("r+b" if at else "wb") as part:
            part.seek(at)
            for piece in response.iter_bytes():
                at += len(piece)
                if at > size:
                    part.truncate(0)
                    raise _other_size(request, f"more than {size}")
                part.write(piece)
                progress.advance(len(piece))
            part.flush()
            os.fsync(part.fileno())
    if at < size:
        raise _Broken(f"{at} of {size} bytes arrived")


def _check_size(response: httpx.Response, request: FileRequest, begin: int) -> None:
    """A response that is not about a file of the listed size is not read at all."""
    size = request.file.size
    length = response.headers.get("Content-Length", "")
    if response.status_code == 200 and length.isdecimal() and int(length) != size:
        raise _other_size(request, length)
    if response.status_code == 206:
        found = _RANGE.match(response.headers.get("Content-Range", ""))
        if found and int(found[3]) != size:
            raise _other_size(request, found[3])
        if found is None or int(found[1]) != begin:
            raise HubError(f"{request.what}: {request.file.path}: the hub sends another part than was asked for")
    if response.status_code == 416:
        raise _other_size(request, f"at most {begin}")


def _other_size(request: FileRequest, found: str) -> HubError:
    return HubError(
        f"{request.what}: {request.file.path} has {found} bytes, but the hub lists {request.file.size}; "
        "nothing of it is used: try again later"
    )


def _check_status(response: httpx.Response, request: FileRequest) -> None:
    status = response.status_code
    if web.insecure(response):
        raise HubError(f"{request.what}: {request.file.path} redirects to an address without encryption")
    if status in (200, 206, 416):
        return
    if status in _TRANSIENT:
        raise _Broken(f"HTTP {status}")
    if status in (401, 403):
        raise HubError(request.refusal)
    raise HubError(f"{request.what}: {request.file.path} cannot be fetched: the hub answers with HTTP {status}")


def _has_digest(part: Path, sha256: str | None) -> bool:
    if sha256 is None:
        return True
    with part.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256
