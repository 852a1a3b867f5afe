"""ModelScope, through the HTTP interface that its own client uses: a file list, and one address a file."""

from __future__ import annotations

import hashlib
from typing import Any
from urllib.parse import urlencode

import httpx

from tenuto.errors import HubError
from tenuto.hub import web
from tenuto.hub.listing import Listing, RepoFile
from tenuto.hub.reference import HubName

_DEFAULT_REVISION = "master"


class ModelScope:
    """See the `Hub` protocol. Public models only."""

    name: HubName = "ms"

    def __init__(self, client: httpx.Client, endpoint: str) -> None:
        self._client = client
        self._endpoint = endpoint.rstrip("/")

    def list_files(self, repo: str, revision: str | None) -> Listing:
        asked = revision or _DEFAULT_REVISION
        what = f"ms:{repo}"
        url = f"{self._endpoint}/api/v1/models/{repo}/repo/files?{urlencode({'Revision': asked, 'Recursive': 'true'})}"
        response, data = web.get_json(self._client, what, url, {})
        if response.status_code in (401, 403):
            raise HubError(self.refusal(repo))
        if response.status_code == 404:
            raise HubError(f"{what}: no such repository, or no revision {asked!r} of it, at {self._endpoint}")
        if response.status_code != 200:
            raise HubError(f"{what}: {self._endpoint} answered with HTTP {response.status_code}; try again later")
        files = tuple(_files(what, self._endpoint, data))
        # The interface names no commit of the whole; the content itself does.
        content = "\n".join(f"{f.path}\0{f.size}\0{f.sha256}" for f in sorted(files, key=lambda f: f.path))
        commit = hashlib.sha256(content.encode()).hexdigest()[:40]
        return Listing(hub="ms", repo=repo, revision=asked, commit=commit, files=files)

    def address(self, listing: Listing, path: str) -> str:
        query = urlencode({"Revision": listing.revision, "FilePath": path})
        return f"{self._endpoint}/api/v1/models/{listing.repo}/repo?{query}"

    def headers(self) -> dict[str, str]:
        return {}

    def refusal(self, repo: str) -> str:
        return f"ms:{repo}: access is restricted; only public models can be fetched from ModelScope"


def _files(what: str, endpoint: str, data: Any) -> list[RepoFile]:
    match data:
        case {"Code": 200, "Data": {"Files": list(entries)}}:
            pass
        case {"Code": int(code), "Message": str(message)}:
            raise HubError(f"{what}: {endpoint} refuses with code {code}: {message[:200]}")
        case _:
            raise HubError(f"{what}: {endpoint} gave an answer that is not ModelScope's interface")
    found = []
    for entry in entries:
        match entry:
            case {"Type": "tree"}:
                continue
            case {"Path": str(path), "Size": int(size)} if size >= 0:
                digest = entry.get("Sha256")
                found.append(RepoFile(path, size, digest.lower() if isinstance(digest, str) and digest else None))
            case _:
                raise HubError(f"{what}: {endpoint} lists a file without path or size")
    return found
