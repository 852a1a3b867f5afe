"""A hub on this machine: real HTTP, both hubs' interfaces, and the faults a network has."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class FakeRepo:
    files: dict[str, bytes]
    commit: str = COMMIT
    gated: bool = False  # the list is public, the files need `token`
    private: bool = False  # both need it
    token: str = "hf_secret"
    listed_sizes: dict[str, int] = field(default_factory=dict)  # where the list lies
    served: dict[str, bytes] = field(default_factory=dict)  # where the content differs from what is listed


@dataclass
class Request:
    path: str
    headers: dict[str, str]


class FakeHub:
    """Repositories by name, and what goes wrong. All counts are of file requests."""

    def __init__(self) -> None:
        self.repos: dict[str, FakeRepo] = {}
        self.requests: list[Request] = []
        self.cut_after: list[int] = []  # each file response takes one: it breaks off after so many bytes
        self.fail_with: list[int] = []  # each file response takes one: its status
        self.ignore_ranges = False
        self.redirect_to: str | None = None  # files lie at another host
        self.moved: dict[str, str] = {}  # renamed repositories: a relative redirect of the list
        self.delay_s = 0.0  # before every piece of a file
        self.piece = 1 << 16
        self.url = ""

    def file_requests(self) -> list[Request]:
        return [
            r for r in self.requests if "/resolve/" in r.path or "FilePath=" in r.path or r.path.startswith("/cdn/")
        ]

    @contextmanager
    def running(self) -> Iterator[FakeHub]:
        hub = self

        class Handler(_Handler):
            fake = hub

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join(timeout=5)


class _Handler(BaseHTTPRequestHandler):
    fake: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None: ...

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.fake.requests.append(Request(self.path, dict(self.headers)))
        url = urlsplit(self.path)
        parts = [unquote(p) for p in url.path.strip("/").split("/")]
        match parts:
            case ["api", "models", org, name, "revision", revision]:
                self._hf_list(f"{org}/{name}", revision)
            case ["api", "models", org, name]:
                self._hf_list(f"{org}/{name}", "main")
            case ["api", "v1", "models", org, name, "repo", "files"]:
                self._ms_list(f"{org}/{name}", parse_qs(url.query))
            case ["api", "v1", "models", org, name, "repo"]:
                self._file(f"{org}/{name}", parse_qs(url.query)["FilePath"][0], restricted=False)
            case ["cdn", org, name, *path]:
                self._file(f"{org}/{name}", "/".join(path), restricted=False)
            case [org, name, "resolve", revision, *path] if f"{org}/{name}" in self.fake.moved:
                self._redirect(f"/{self.fake.moved[f'{org}/{name}']}/resolve/{revision}/{'/'.join(path)}", 307)
            case [org, name, "resolve", _, *path] if self.fake.redirect_to:
                self._redirect(f"{self.fake.redirect_to}/cdn/{org}/{name}/{'/'.join(path)}?Signature=canary-signature")
            case [org, name, "resolve", _, *path]:
                self._file(f"{org}/{name}", "/".join(path), restricted=True)
            case _:
                self._json(404, {"error": "nothing here"})

    def _hf_list(self, repo: str, revision: str) -> None:
        if repo in self.fake.moved:
            self._redirect(f"/api/models/{self.fake.moved[repo]}/revision/{revision}?blobs=true", 307)
            return
        found = self.fake.repos.get(repo)
        if found is None or (found.private and not self._authorised(found)):
            self._json(401, {"error": "Invalid username or password."}, {"X-Error-Code": "RepoNotFound"})
            return
        if revision not in ("main", found.commit):
            self._json(404, {"error": "Invalid rev id"}, {"X-Error-Code": "RevisionNotFound"})
            return
        siblings = []
        for path, content in found.files.items():
            size = found.listed_sizes.get(path, len(content))
            entry: dict[str, Any] = {"rfilename": path, "size": size, "blobId": hashlib.sha1(content).hexdigest()}
            if path.endswith((".safetensors", ".gguf", ".bin")):
                entry["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": size, "pointerSize": 134}
            siblings.append(entry)
        self._json(200, {"_id": "1", "id": repo, "modelId": repo, "sha": found.commit, "siblings": siblings})

    def _ms_list(self, repo: str, query: dict[str, list[str]]) -> None:
        found = self.fake.repos.get(repo)
        if found is None or query["Revision"] not in (["master"], ["v1"]):
            self._json(404, {"Code": 10010205001, "Message": "记录不存在", "Success": False})
            return
        files: list[dict[str, Any]] = [{"Type": "tree", "Path": "folder", "Name": "folder", "Size": 0}]
        for path, content in found.files.items():
            size = found.listed_sizes.get(path, len(content))
            sha = hashlib.sha256(content).hexdigest()
            files.append({"Type": "blob", "Path": path, "Name": path.split("/")[-1], "Size": size, "Sha256": sha})
        self._json(200, {"Code": 200, "Data": {"Files": files}, "Message": "success", "Success": True})

    def _authorised(self, repo: FakeRepo) -> bool:
        return self.headers.get("Authorization") == f"Bearer {repo.token}"

    def _file(self, repo: str, path: str, *, restricted: bool) -> None:
        found = self.fake.repos.get(repo)
        if found is None or path not in found.files:
            self._json(404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound"})
            return
        if restricted and (found.gated or found.private) and not self._authorised(found):
            self._json(401, {"error": "gated"}, {"X-Error-Code": "GatedRepo"})
            return
        if self.fake.fail_with:
            self._json(self.fake.fail_with.pop(0), {"error": "busy"})
            return
        self._send(found.served.get(path, found.files[path]))

    def _send(self, content: bytes) -> None:
        begin, end = 0, len(content)
        asked = self.headers.get("Range")
        ranged = asked is not None and not self.fake.ignore_ranges
        if ranged:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            begin, end = int(first), min(int(last) + 1, len(content)) if last else len(content)
            if begin >= len(content):
                self._json(416, {"error": "range"})
                return
        self.send_response(206 if ranged else 200)
        self.send_header("Content-Length", str(end - begin))
        if ranged:
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(content)}")
        self.end_headers()
        if self.command == "HEAD":
            return
        stop = min(end, begin + self.fake.cut_after.pop(0)) if self.fake.cut_after else end
        try:
            for at in range(begin, stop, self.fake.piece):
                time.sleep(self.fake.delay_s)
                self.wfile.write(content[at : min(at + self.fake.piece, stop)])
        except (BrokenPipeError, ConnectionResetError):
            pass  # the client has gone: that is its right
        self.close_connection = self.close_connection or stop < end

    def _redirect(self, to: str, status: int = 302) -> None:
        self.send_response(status)
        self.send_header("Location", to)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _json(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
