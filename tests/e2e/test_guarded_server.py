"""A server as it is run for others, a real process with the real model: keys, TLS, traces, logs, poisoned requests.

One canary is the key; another stands in what users write. Every sink is searched for both (B67).
"""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from serving_process import CHAT, STOP_DEADLINE_S, Served, served

pytestmark = pytest.mark.model

KEY_CANARY = "canary-key-83b1f2d0c4"
TOKEN_CANARY = "canary-collector-77e0"
CONTENT_CANARY = "机密canary内容"


class Collector(HTTPServer):
    """Takes whatever is sent to it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Taking)
        self.bodies: list[bytes] = []


class _Taking(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


class Guarded:
    """The server, who may talk to it, and where its traces go."""

    def __init__(self, server: Served, context: ssl.SSLContext, collector: Collector, folder: Path) -> None:
        self.server, self.context, self.collector, self.folder = server, context, collector, folder
        self.shown: list[str] = []  # everything that clients were told

    def client(self, key: str | None) -> httpx.Client:
        def keep(response: httpx.Response) -> None:
            response.read()
            self.shown.append(response.text + str(response.headers))

        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        hooks = {"response": [keep]}
        url = self.server.url
        return httpx.Client(base_url=url, verify=self.context, headers=headers, timeout=120, event_hooks=hooks)

    def keys(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "tenuto", "keys", *arguments, "--file", str(self.folder / "keys.json")]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    authority, context = trustme.CA(), ssl.create_default_context()
    authority.configure_trust(context)
    issued = authority.issue_cert("localhost", "127.0.0.1")
    (folder / "cert.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    (folder / "key.pem").write_bytes(issued.private_key_pem.bytes())
    (folder / "keys.json").write_text('{"keys": []}')
    collector = Collector()
    thread = threading.Thread(target=collector.serve_forever)
    thread.start()
    changed = {
        "TENUTO_API_KEY": KEY_CANARY,
        "TENUTO_API_KEYS_FILE": str(folder / "keys.json"),
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}",
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{TOKEN_CANARY}",
    }
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    arguments = ["-m", "tenuto", "serve", "--port", "0", "--log-format", "json", "--precision", "int8"]
    arguments += ["--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem")]
    try:
        with served(arguments) as server:
            yield Guarded(server, context, collector, folder)
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        collector.shutdown()
        thread.join()
        collector.server_close()


def _ask(client: httpx.Client, **fields: Any) -> httpx.Response:
    messages = [{"role": "user", "content": CONTENT_CANARY}]
    return client.post(CHAT, json={"model": "default", "messages": messages, "max_tokens": 6, **fields})


def test_only_who_has_a_key_is_let_in(guarded: Guarded) -> None:
    with guarded.client(None) as nobody, guarded.client(KEY_CANARY + "x") as wrong, guarded.client(KEY_CANARY) as known:
        assert _ask(nobody).status_code == _ask(wrong).status_code == 401
        assert nobody.get("/health").status_code == nobody.get("/ready").status_code == 200
        assert _ask(known).status_code == 200
        assert known.get("/metrics").status_code == 200


def test_keys_come_and_go_while_the_server_runs(guarded: Guarded) -> None:
    key = guarded.keys("new", "alice")
    with guarded.client(key) as alice:
        assert _until_status(alice, 200) == 200
        guarded.keys("revoke", key.split("-")[1])
        assert _until_status(alice, 401) == 401
    assert guarded.keys("list") == ""
    assert key.split("-")[2] not in "".join(guarded.server.lines)


def _until_status(client: httpx.Client, status: int) -> int:
    """The server looks at the file once a second."""
    seen = 0
    for _ in range(100):
        seen = client.get("/v1/models").status_code
        if seen == status:
            break
        threading.Event().wait(0.1)
    return seen


def _format(schema: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "strict": True, "schema": schema}}}


def _deep(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"], "additionalProperties": False}
    return schema


POISON: dict[str, dict[str, Any]] = {
    "no format": {"response_format": False},
    "json_object with a value": {"response_format": {"type": "json_object", "json_schema": False}},
    "empty schema text": _format(""),
    "property that is a text": _format({"type": "object", "properties": {"a": "string"}}),
    "unclosed pattern": _format({"type": "string", "pattern": "(((["}),
    "deep": _format(_deep(150)),
    "not so deep": _format(_deep(30)),
    "a million choices": _format({"enum": [str(n) * 3 for n in range(99_000)]}),
    "huge repeat": _format({"type": "string", "pattern": "(a{1,3000}){1,3000}"}),
    "endless reference": _format({"$ref": "#"}),
    "tool with a bad schema": {
        "tools": [{"type": "function", "function": {"name": "t", "strict": True, "parameters": {"type": "nothing"}}}]
    },
    "biased beyond the vocabulary": {"logit_bias": {"99999999": 1}},
    "a context full": {"max_tokens": 2**31 - 1},
}


def test_a_poisoned_request_is_refused_and_harms_nobody(guarded: Guarded) -> None:
    """B47: another request streams all the time, and says what it would say alone."""
    with guarded.client(KEY_CANARY) as client:
        fields = {"max_tokens": 40, "ignore_eos": True, "temperature": 0}
        alone = _ask(client, **fields).json()["choices"][0]["message"]["content"]
        told: list[str] = []

        def stream() -> None:
            told.append(_ask(client, **fields).json()["choices"][0]["message"]["content"])

        beside = threading.Thread(target=stream)
        beside.start()
        for name, poison in POISON.items():
            response = _ask(client, **poison)
            assert 400 <= response.status_code < 500 or response.status_code == 200, (name, response.text[:300])
            if response.status_code != 200:
                assert set(response.json()["error"]) == {"message", "type", "param", "code"}
        beside.join(300)
        assert told == [alone]
        response = client.post(CHAT, content=b'{"model": ' * 100_000, headers={"Content-Type": "application/json"})
        assert response.status_code == 400
        assert client.get("/ready").status_code == 200


def test_nothing_leaks_to_the_very_end(guarded: Guarded) -> None:
    """The last of this file: it ends the server."""
    with guarded.client(KEY_CANARY) as client:
        client.post(f"{CHAT}?key={KEY_CANARY}", json={"model": CONTENT_CANARY, "messages": []})
        assert _ask(client, model=CONTENT_CANARY).status_code == 404
        assert _ask(client).status_code == 200
    guarded.server.process.send_signal(signal.SIGTERM)
    assert guarded.server.process.wait(STOP_DEADLINE_S) == 0
    logged = "".join(guarded.server.lines)
    traced = b"".join(guarded.collector.bodies)
    assert b"gen_ai.usage.input_tokens" in traced and b"chat " in traced, "spans arrived"
    requests = [json.loads(line) for line in guarded.server.lines if '"event": "request"' in line]
    assert {line["status"] for line in requests} >= {200, 401, 404}
    assert {line.get("tenant") for line in requests} >= {"default"}
    for canary in (KEY_CANARY, TOKEN_CANARY):
        assert canary not in logged and canary.encode() not in traced
        assert not any(canary in text for text in guarded.shown)
    assert CONTENT_CANARY not in logged and CONTENT_CANARY.encode() not in traced
    assert [line for line in guarded.server.lines if "Traceback" in line] == []
