"""Connections: how many, slow heads, unwanted bodies, clients that do not read, TLS, and new work during a drain."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import time
from pathlib import Path

import httpx
import pytest
import trustme
from server_harness import CHAT, Live, live, until

from tenuto.errors import ConfigError
from tenuto.server import ServerLimits
from tenuto.server.tls import load_tls
from tenuto.testing.scripted_model import Reply

BODY = {"model": "smol", "messages": [{"role": "user", "content": "你好"}]}


def connected(server: Live) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.server.port), timeout=10)


def read_all(raw: socket.socket) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := raw.recv(65536):
            received += piece
    return received


def test_one_connection_too_many_is_told_and_closed_and_the_others_live():
    with live(lambda _: "好", ServerLimits(max_connections=3)) as server:
        held = [connected(server) for _ in range(3)]
        until(lambda: len(server.server._server.server_state.connections) == 3)
        answer = read_all(connected(server))
        assert answer.startswith(b"HTTP/1.1 503 ") and b"Retry-After: 1" in answer
        assert json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]["code"] == "too_many_connections"
        for raw in held:
            raw.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert read_all(raw).startswith(b"HTTP/1.1 200 ")
        until(lambda: not server.server._server.server_state.connections)
        assert httpx.get(server.url + "/health").status_code == 200


HEAD = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize("first", [b"", b"GET /hea", HEAD[:-2], HEAD + b"G", HEAD + HEAD[:-1]])
def test_a_head_that_does_not_become_whole_ends_its_connection(first: bytes):
    """Slow loris: on a fresh connection, and after an answer on one that is kept."""
    with live([], ServerLimits(header_deadline_s=0.3)) as server:
        raw = connected(server)
        raw.sendall(first)
        answer = read_all(raw)
        assert answer.count(b"HTTP/1.1 200 OK") == first.startswith(HEAD)
        assert server.server._server.server_state.connections == set()


def test_a_byte_at_a_time_does_not_help():
    with live([], ServerLimits(header_deadline_s=0.5)) as server:
        raw = connected(server)
        start = time.monotonic()
        with contextlib.suppress(ConnectionError):
            for _ in range(600):
                raw.sendall(b"X")
                time.sleep(0.02)
        assert time.monotonic() - start < 8, "it was let in for as long as it sent"


def test_a_body_that_nobody_wants_is_not_read_for_ever():
    with live([], ServerLimits(header_deadline_s=0.5, max_body_bytes=1024)) as server:
        raw = connected(server)
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        raw.sendall((head + "Content-Length: 10000000000\r\n\r\n").encode())
        start = time.monotonic()
        with contextlib.suppress(ConnectionError):
            for _ in range(600):
                raw.sendall(b"x" * 1000)
                time.sleep(0.02)
        assert time.monotonic() - start < 8


@pytest.mark.parametrize("on_asyncio", [False, True])
def test_a_kept_connection_serves_many_requests(on_asyncio: bool):
    limits = ServerLimits(header_deadline_s=0.3)
    with live(lambda _: "好", limits, on_asyncio=on_asyncio) as server, httpx.Client() as client:
        for number in range(4):
            time.sleep(0.2 if number else 0)
            assert client.post(server.url + CHAT, json=BODY).status_code == 200


def test_during_a_drain_new_work_goes_elsewhere_and_running_work_ends():
    with live(lambda _: Reply("一二三四五六" * 5, piece_delay_s=0.1)) as server:
        with (
            httpx.Client(base_url=server.url, timeout=20) as client,
            client.stream("POST", CHAT, json={**BODY, "stream": True}) as running,
        ):
            lines = running.iter_lines()
            assert next(lines).startswith("data:")
            server.stop()
            until(lambda: httpx.get(server.url + "/ready").status_code == 503)
            refused = httpx.post(server.url + CHAT, json=BODY)
            assert refused.status_code == 503 and refused.headers["connection"] == "close"
            assert refused.json()["error"]["code"] == "engine_closed"
            assert httpx.get(server.url + "/health").status_code == 200
            *rest, done, _ = lines
            assert done == "data: [DONE]" and any('"finish_reason":"stop"' in line for line in rest)
        until(lambda: _refuses(server))


def _refuses(server: Live) -> bool:
    try:
        connected(server).close()
    except ConnectionError:
        return True
    return False


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def files(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    issued = authority.issue_cert("localhost", "127.0.0.1")
    certificate, key = folder / "证书.pem", folder / "key.pem"
    certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    return certificate, key


def test_https_is_served_and_plain_text_is_not(authority: trustme.CA, files: tuple[Path, Path]):
    context = ssl.create_default_context()
    authority.configure_trust(context)
    tls = load_tls(*files)
    assert tls is not None and tls.minimum_version == ssl.TLSVersion.TLSv1_2
    with live(lambda _: Reply("好", piece_delay_s=0.01), tls=tls) as server:
        assert server.url.startswith("https://")
        with httpx.Client(verify=context) as client:
            assert client.post(server.url + CHAT, json=BODY).json()["choices"][0]["message"]["content"] == "好"
            with client.stream("POST", server.url + CHAT, json={**BODY, "stream": True}) as response:
                assert response.read().endswith(b"data: [DONE]\n\n")
        with pytest.raises(httpx.TransportError):
            httpx.get(server.url.replace("https", "http") + "/health")
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE"):
            httpx.get(server.url + "/health")


@pytest.fixture
def brief_goodbye(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that never say goodbye are not waited for as long as others would be."""
    monkeypatch.setattr("tenuto.server.connections._LINGER_S", 0.5)


@pytest.mark.usefixtures("brief_goodbye")
@pytest.mark.parametrize("first", [b"", b"GET /hea", HEAD + b"G"])
def test_slow_heads_end_their_connection_with_tls_too(
    authority: trustme.CA, files: tuple[Path, Path], first: bytes, caplog: pytest.LogCaptureFixture
):
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with live([], ServerLimits(header_deadline_s=0.3), tls=load_tls(*files)) as server:
        raw = context.wrap_socket(connected(server), server_hostname="localhost")
        raw.sendall(first)
        assert read_all(raw).count(b"HTTP/1.1 200 OK") == first.startswith(HEAD)
        if not first:
            raw.close()  # the others never say goodbye
        until(lambda: not server.server._server.server_state.connections)
    assert "Traceback" not in caplog.text


def test_handshakes_that_do_not_come_are_bounded_in_number_and_time(
    authority: trustme.CA, files: tuple[Path, Path], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """Who connects and says nothing holds a file: as few of them as connections, and no longer than a slow head."""
    monkeypatch.setattr("tenuto.server.listener._SURPLUS", 2)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with live([], ServerLimits(max_connections=2, header_deadline_s=1), tls=load_tls(*files)) as server:
        start = time.monotonic()
        silent = [connected(server) for _ in range(4)]
        surplus = connected(server)
        assert read_all(surplus) == b"" and time.monotonic() - start < 0.9, "one more is closed at once"
        assert all(read_all(raw) == b"" for raw in silent) and time.monotonic() - start < 8
        garbage = connected(server)
        garbage.sendall(b"GET / HTTP/1.1\r\n\r\n")
        read_all(garbage)
        assert httpx.get(server.url + "/health", verify=context).status_code == 200
        for raw in (*silent, surplus, garbage):
            raw.close()
        connected(server)  # still silent when the server ends
    assert "Traceback" not in caplog.text and "never retrieved" not in caplog.text


def test_the_end_of_a_server_says_nothing_of_clients_that_do_not_say_goodbye(
    authority: trustme.CA, files: tuple[Path, Path], caplog: pytest.LogCaptureFixture
):
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with live([], tls=load_tls(*files), drain_deadline_s=0.1) as server:
        raw = context.wrap_socket(connected(server), server_hostname="localhost")
        raw.sendall(HEAD)
        assert raw.recv(100).startswith(b"HTTP/1.1 200")
    raw.close()
    assert "Cancel" not in caplog.text, "nothing ran that could be cancelled"


def test_no_files_left_for_a_connection_is_said_once_in_a_while(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    real, failures = asyncio.SelectorEventLoop.sock_accept, [OSError(24, "Too many open files")]
    monkeypatch.setattr("tenuto.server.listener._RETRY_S", 0.05)

    async def accept(loop: asyncio.SelectorEventLoop, bound: socket.socket) -> object:
        if failures:
            raise failures.pop()
        return await real(loop, bound)

    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_accept", accept)
    with live([], on_asyncio=True) as server:
        assert httpx.get(server.url + "/health").status_code == 200
    assert not failures and "Traceback" not in caplog.text


@pytest.mark.usefixtures("brief_goodbye")
def test_an_idle_connection_is_closed_without_a_word(
    authority: trustme.CA, files: tuple[Path, Path], caplog: pytest.LogCaptureFixture
):
    context = ssl.create_default_context()
    authority.configure_trust(context)
    for tls in (None, load_tls(*files)):
        with live([], tls=tls) as server:
            server.server._server.config.timeout_keep_alive = 0
            raw: socket.socket = connected(server)
            if tls is not None:
                raw = context.wrap_socket(raw, server_hostname="localhost")
            raw.sendall(HEAD)
            assert read_all(raw).startswith(b"HTTP/1.1 200 OK")
            until(lambda server=server: not server.server._server.server_state.connections)  # type: ignore[misc]
    assert "Traceback" not in caplog.text


def test_files_that_cannot_be_used_are_named(files: tuple[Path, Path], authority: trustme.CA, tmp_path: Path):
    certificate, key = files
    other, text, locked = tmp_path / "other.pem", tmp_path / "text.pem", tmp_path / "locked.pem"
    other.write_bytes(authority.issue_cert("other").private_key_pem.bytes())
    text.write_text("no certificate 不是证书")
    locked.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\nabc\n-----END ENCRYPTED PRIVATE KEY-----\n")
    damaged = tmp_path / "damaged.pem"
    damaged.write_bytes(certificate.read_bytes()[:200])
    assert load_tls(None, None) is None
    cases: list[tuple[Path | None, Path | None, str]] = [
        (certificate, None, "--tls-key"),
        (None, key, "--tls-cert"),
        (tmp_path / "none.pem", key, "none.pem.*No such file"),
        (certificate, tmp_path, "cannot be read"),
        (text, key, "text.pem.*PEM"),
        (certificate, text, "text.pem.*PEM"),
        (certificate, other, "other.pem.*not the key"),
        (certificate, locked, "locked.pem.*password"),
        (damaged, key, "damaged.pem"),
        (key, certificate, "key.pem"),
    ]
    for first, second, message in cases:
        with pytest.raises(ConfigError, match=message):
            load_tls(first, second)
