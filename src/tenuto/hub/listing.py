"""What a repository holds, in one form for both hubs."""

from __future__ import annotations

import msgspec

from tenuto.errors import HubError
from tenuto.hub.reference import HubName

_MAX_NAME = 240


class RepoFile(msgspec.Struct, frozen=True):
    path: str  # inside the repository, with forward slashes
    size: int  # bytes
    sha256: str | None = None  # 64 hex digits; the hubs know it of large files, ModelScope of all


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """All files of one revision."""

    hub: HubName
    repo: str
    revision: str  # what files are asked for by
    commit: str  # hex digits that stand for exactly this content
    files: tuple[RepoFile, ...]

    def find(self, path: str) -> RepoFile | None:
        return next((f for f in self.files if f.path == path), None)


def checked_path(repo: str, path: str) -> str:
    """The path, if it can only name a file below the folder it is joined to. Raises HubError.

    Names come from a server that others fill: no absolute paths, no `..`, no drive letters, no other separators.
    """
    parts = path.split("/")
    bad = any(c in "\\:\0" or ord(c) < 32 for c in path) or len(path) > _MAX_NAME
    if bad or any(part in ("", ".", "..") for part in parts):
        raise HubError(f"{repo}: the hub lists a file named {path!r:.80}, which would lie outside the model's folder")
    return path
