"""A streamed answer on the wire: framed as its reader's HTTP wants it, whole for who reads slowly."""

from __future__ import annotations

import json
import socket
import time

import pytest
from server_harness import CHAT, Live, live, until

from tenuto.server import ServerLimits
from tenuto.server.streamed_body import put_of
from tenuto.testing.scripted_model import Reply

LONG = "北京今天是晴天。" * 2_500  # in as many events as characters: 4 MB, more than sockets take at once


def ask(text: str, version: str = "1.1", *, last: bool = True, method: str = "POST") -> bytes:
    asked = {"model": "smol", "stream": True, "messages": [{"role": "user", "content": text}]}
    body = json.dumps(asked, ensure_ascii=False).encode()
    close = "Connection: close\r\n" if last else ""
    head = f"{method} {CHAT} HTTP/{version}\r\nHost: localhost\r\nContent-Type: application/json\r\n{close}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def said(server: Live, *asked: bytes, rest_s: float = 0.0) -> bytes:
    """All that is answered until the server closes; nothing is read for `rest_s` at first, and little at a time."""
    received = bytearray()
    with socket.create_connection(("127.0.0.1", server.server.port), timeout=20) as raw:
        raw.sendall(b"".join(asked))
        time.sleep(rest_s)
        while piece := raw.recv(65536):
            received += piece
    return bytes(received)


def take_chunks(rest: bytes) -> tuple[list[bytes], bytes]:
    """The chunks of a body up to its end, and what follows."""
    chunks: list[bytes] = []
    while True:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        chunk, end, rest = rest[:length], rest[length : length + 2], rest[length + 2 :]
        assert end == b"\r\n" and len(chunk) == length
        if not length:
            return chunks, rest
        chunks.append(chunk)


def text_of(body: bytes) -> str:
    events = body.decode().removesuffix("\n\n").split("\n\n")
    assert events[-1] == "data: [DONE]"
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-1]]
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)


def test_each_event_is_a_chunk_and_answers_follow_each_other():
    with live(lambda request: Reply(request.messages[-1].content * 3)) as server:
        rest = said(server, ask("甲", last=False), ask("乙", last=False), ask("丙"))
    for text in "甲乙丙":
        head, _, rest = rest.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ") and b"transfer-encoding: chunked" in head.lower()
        chunks, rest = take_chunks(rest)
        assert text_of(b"".join(chunks)) == text * 3
        assert all(chunk.startswith(b"data: ") and chunk.endswith(b"\n\n") for chunk in chunks)
    assert not rest


def test_an_old_reader_gets_the_body_as_it_is_up_to_the_end_of_the_connection():
    with live(lambda _: "你好") as server:
        head, _, body = said(server, ask("x", "1.0")).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower() and b"connection: close" in head.lower()
    assert text_of(body) == "你好"


@pytest.mark.parametrize("on_asyncio", [False, True])
def test_who_reads_slowly_gets_all(on_asyncio: bool):
    with live(lambda _: LONG, ServerLimits(send_deadline_s=20), on_asyncio=on_asyncio) as server:
        rest = said(server, ask("x"), rest_s=0.3).partition(b"\r\n\r\n")[2]
    chunks, rest = take_chunks(rest)
    assert text_of(b"".join(chunks)) == LONG and not rest


@pytest.mark.parametrize("on_asyncio", [False, True])
def test_what_is_sent_to_who_takes_nothing_ends_with_the_deadline(on_asyncio: bool):
    flood = Reply("字" * 30_000_000)
    with live(lambda _: flood, ServerLimits(send_deadline_s=0.3), on_asyncio=on_asyncio) as server:
        with socket.create_connection(("127.0.0.1", server.server.port), timeout=20) as raw:
            raw.sendall(ask("x"))
            until(lambda: len(server.model.seen.cancelled) == 1, 30)
        until(lambda: not server.server._server.server_state.tasks)


def test_a_head_alone_has_no_body_and_other_servers_have_no_short_way():
    with live(lambda _: "x") as server:
        answer = said(server, ask("x", method="HEAD"))
    assert answer.partition(b"\r\n\r\n")[2] == b""
    assert put_of({"type": "http"}) is None
