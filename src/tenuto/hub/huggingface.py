"""Hugging Face, or a mirror that speaks its API.

`huggingface_hub` knows the addresses and reads the answers. Its downloader is not used: it throws away what a killed
process had fetched, and waits for other processes without end.
"""

from __future__ import annotations

from urllib.parse import quote

import httpx

from tenuto.errors import HubError
from tenuto.hub import web
from tenuto.hub.listing import Listing, RepoFile
from tenuto.hub.reference import HubName

_HEX = frozenset("0123456789abcdef")


class HuggingFace:
    """See the `Hub` protocol.

    Args:
        token: goes into the Authorization header and nowhere else.
    """

    name: HubName = "hf"

    def __init__(self, client: httpx.Client, endpoint: str, token: str | None) -> None:
        self._client = client
        self._endpoint = endpoint.rstrip("/")
        self._token = token

    def list_files(self, repo: str, revision: str | None) -> Listing:
        from huggingface_hub import ModelInfo  # a third of a second that other commands need not wait for

        what = f"hf:{repo}"
        url = f"{self._endpoint}/api/models/{repo}/revision/{quote(revision or 'main', safe='')}?blobs=true"
        response, data = web.get_json(self._client, what, url, self.headers())
        if response.status_code != 200:
            raise self._failure(repo, revision, response)
        try:
            info = ModelInfo(**data)  # type: ignore[no-untyped-call]
            files = tuple(_file(s.rfilename, s.size, s.lfs.sha256 if s.lfs else None) for s in info.siblings or ())
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise HubError(
                f"{what}: {self._endpoint} gave an answer that is not Hugging Face's API ({error})"
            ) from error
        commit = str(info.sha)
        if not _HEX.issuperset(commit) or not 7 <= len(commit) <= 64:
            raise HubError(f"{what}: {self._endpoint} does not name the commit; is that a Hugging Face endpoint?")
        return Listing(hub="hf", repo=repo, revision=commit, commit=commit, files=files)

    def _failure(self, repo: str, revision: str | None, response: httpx.Response) -> HubError:
        code = response.headers.get("X-Error-Code", "")
        if code == "GatedRepo" or response.status_code == 403:
            return HubError(self.refusal(repo))
        if code == "RevisionNotFound":
            return HubError(f"hf:{repo}: there is no revision {revision!r}")
        # Of a repository that is private or absent the hub says only that we may not see it.
        if code == "RepoNotFound" or response.status_code in (401, 404):
            hint = "" if self._token else "; if it is private, set HF_TOKEN to a token that may read it"
            return HubError(f"hf:{repo}: no such repository at {self._endpoint}{hint}")
        return HubError(f"hf:{repo}: {self._endpoint} answered with HTTP {response.status_code}; try again later")

    def address(self, listing: Listing, path: str) -> str:
        from huggingface_hub import hf_hub_url

        return hf_hub_url(listing.repo, path, revision=listing.revision, endpoint=self._endpoint)

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def refusal(self, repo: str) -> str:
        page = f"{self._endpoint}/{repo}"
        if self._token:
            return f"hf:{repo}: access is restricted, and HF_TOKEN's token may not read it; ask for access at {page}"
        return f"hf:{repo}: access is restricted; ask for it at {page} and set HF_TOKEN to a token that may read it"


def _file(path: object, size: object, sha256: object) -> RepoFile:
    if not isinstance(path, str) or type(size) is not int or size < 0:
        raise ValueError(f"a file is listed as {path!r:.80} with size {size!r:.20}")
    return RepoFile(path, size, sha256 if isinstance(sha256, str) else None)
