"""A listening server: clients that leave, clients that do not read, and an orderly end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time

import httpx
import pytest
from server_harness import CHAT, Live, build, events, live, noted, until
from structlog.testing import capture_logs

from tenuto.clock import RealClock
from tenuto.ids import IdSource
from tenuto.protocol.chat import TextDelta
from tenuto.server import BoundAddress, ServerLimits, WebServer, create_app
from tenuto.testing.scripted_model import Reply

ENDLESS = Reply("字" * 300_000, piece_delay_s=0.01)
QUEUED = Reply("太晚了", delay_s=600)


def connect(server: Live, body: dict[str, object]) -> socket.socket:
    content = json.dumps({"model": "smol", "messages": [{"role": "user", "content": "你好"}], **body}).encode()
    head = (
        f"POST {CHAT} HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    raw = socket.create_connection(("127.0.0.1", server.server.port), timeout=10)
    raw.sendall(head.encode() + content)
    return raw


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("reply", [QUEUED, ENDLESS], ids=["queued", "generating"])
def test_a_client_that_leaves_cancels_its_request(reply: Reply, stream: bool):
    """B37: streamed or not, while it waits or while it generates."""
    with capture_logs() as logs, live(lambda _: reply) as server:
        raw = connect(server, {"stream": stream})
        seen = server.model.seen
        until(lambda: len(seen.requests) == 1)
        if stream and reply is ENDLESS:
            assert raw.recv(100).startswith(b"HTTP/1.1 200")
        assert seen.cancelled == []
        raw.close()
        until(lambda: seen.cancelled == seen.requests)
        assert httpx.get(server.url + "/health").status_code == 200
    assert [entry["event"] for entry in noted(logs)] == ["client_disconnected"]


def test_a_client_that_reads_nothing_is_gone_after_the_deadline():
    flood = Reply("字" * 30_000_000)  # more than any socket's buffers hold
    with live(lambda _: flood, ServerLimits(send_deadline_s=0.3)) as server:
        raw = connect(server, {"stream": True})
        until(lambda: len(server.model.seen.cancelled) == 1, 30)
        raw.close()


def test_a_client_that_leaves_in_its_body_is_no_failure(caplog: pytest.LogCaptureFixture):
    with capture_logs() as logs, live([]) as server:
        raw = socket.create_connection(("127.0.0.1", server.server.port), timeout=10)
        head = f"POST {CHAT} HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
        raw.sendall(head.encode() + b'{"model"')
        time.sleep(0.1)  # so that the route has begun to read
        raw.close()
        until(lambda: bool(logs))
        assert httpx.get(server.url + "/health").status_code == 200
    assert [entry["event"] for entry in noted(logs)] == ["client_disconnected"]
    assert "Traceback" not in caplog.text


def test_one_client_leaving_harms_no_other():
    def reply(request: object) -> Reply:
        return Reply("答案" * 30, piece_delay_s=0.005)

    with live(reply) as server:
        leaving = [connect(server, {"stream": index % 2 == 0}) for index in range(6)]
        until(lambda: len(server.model.seen.requests) == 6)
        staying = [connect(server, {"stream": True}) for _ in range(3)]
        for raw in leaving:
            raw.close()
        for raw in staying:
            received = b""
            while b"[DONE]" not in received:
                received += raw.recv(65536)
            pieces = [json.loads(line[6:]) for line in received.decode().splitlines() if line.startswith('data: {"id"')]
            text = "".join(p["choices"][0]["delta"].get("content", "") for p in pieces)
            assert text == "答案" * 30
            raw.close()
        until(lambda: len(server.model.seen.cancelled) == 6)


class SlowToEnd:
    """A model client whose clean-up awaits, as one that must tell an engine does."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.cleaned_up = False

    async def stream(self, request: object):
        try:
            while True:
                yield TextDelta(text="字")
                self.started.set()
                await asyncio.sleep(0.01)
        finally:
            await asyncio.sleep(0.05)
            self.cleaned_up = True


@pytest.mark.parametrize("stream", [False, True])
def test_the_models_own_clean_up_is_not_interrupted(stream: bool):
    async def main() -> None:
        model = SlowToEnd()
        app = create_app(model, served_names=("m",), clock=RealClock(), ids=IdSource(1))
        body = json.dumps({"model": "m", "stream": stream, "messages": [{"role": "user", "content": "x"}]}).encode()
        scope = {"type": "http", "method": "POST", "path": CHAT, "raw_path": CHAT.encode(), "query_string": b""}
        scope |= {"headers": [(b"content-type", b"application/json")], "http_version": "1.1", "scheme": "http"}
        scope |= {"asgi": {"version": "3.0", "spec_version": "2.3"}, "server": ("t", 80), "root_path": ""}
        sent_body = False

        async def receive() -> dict[str, object]:
            nonlocal sent_body
            if not sent_body:
                sent_body = True
                return {"type": "http.request", "body": body, "more_body": False}
            await model.started.wait()
            return {"type": "http.disconnect"}

        async def send(_: object) -> None:
            await asyncio.sleep(0)

        await app(scope, receive, send)
        assert model.cleaned_up

    asyncio.run(main())


def test_small_pieces_of_an_answer_are_sent_at_once():
    """With Nagle's algorithm each waits for the client to confirm the one before: 40 ms, for every answer."""
    with live(lambda _: Reply("好")) as server, httpx.Client(base_url=server.url) as client:
        assert client.get("/health").status_code == 200
        (connection,) = server.server._server.server_state.connections
        taken = connection.transport.get_extra_info("socket")
        assert taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("num_stops", [1, 2], ids=["after the deadline", "at once when told twice"])
@pytest.mark.parametrize("reply", [QUEUED, ENDLESS], ids=["queued", "generating"])
def test_requests_that_outlive_the_drain_are_told_and_cancelled_before_run_returns(
    reply: Reply, num_stops: int, caplog: pytest.LogCaptureFixture
):
    async def main() -> None:
        model, app = build(lambda _: reply)
        server = WebServer(app, BoundAddress("127.0.0.1", 0), drain_deadline_s=0.1)
        running = asyncio.create_task(server.run())
        body = {"model": "smol", "messages": [{"role": "user", "content": "你好"}]}
        async with httpx.AsyncClient(base_url=server.url, timeout=20) as client:
            plain = asyncio.create_task(client.post(CHAT, json=body))
            streamed = asyncio.create_task(client.post(CHAT, json={**body, "stream": True}))
            await asyncio.to_thread(until, lambda: len(model.seen.requests) == 2)
            await asyncio.sleep(0.1)  # the stream that generates has begun
            for _ in range(num_stops):
                server.stop()
            await asyncio.wait_for(running, 10)
            assert len(model.seen.cancelled) == 2
            assert (await plain).status_code == 503
            answer = await streamed
            if reply is QUEUED:
                assert answer.status_code == 503
            else:
                *_, error, done = events(answer)
                assert (error["error"]["code"], done) == ("engine_closed", "[DONE]")

    with capture_logs() as logs:
        asyncio.run(main())
    assert [line["error"] for line in logs if line["event"] == "request"] == ["engine_closed"] * 2
    assert "Traceback" not in caplog.text


SERVE = textwrap.dedent(
    """
    import asyncio
    import sys
    from tenuto.clock import RealClock
    from tenuto.ids import IdSource
    from tenuto.server import BoundAddress, WebServer, create_app, serve
    from tenuto.telemetry import configure_logs
    from tenuto.testing.scripted_model import Reply, ScriptedModel

    configure_logs(sys.stderr, "json")
    model = ScriptedModel(lambda _: Reply("一二三四五六七八九十" * 3, piece_delay_s=0.1))
    app = create_app(model, served_names=("smol",), clock=RealClock(), ids=IdSource())

    async def main():
        server = WebServer(app, BoundAddress("127.0.0.1", 0), drain_deadline_s=20)
        await serve(server, on_listening=lambda url: print(url, flush=True))
        print("closed in order", flush=True)

    asyncio.run(main())
    """
)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_drains_and_returns(number: int):
    """A real process: what runs is finished, then the caller goes on, so that it can close the engine."""
    with subprocess.Popen([sys.executable, "-c", SERVE], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            body = {"model": "smol", "stream": True, "messages": [{"role": "user", "content": "你好"}]}
            with httpx.stream("POST", url + CHAT, json=body, timeout=20) as response:
                lines = response.iter_lines()
                assert next(lines).startswith("data:")
                os.kill(process.pid, number)
                *rest, done, _ = lines
            assert done == "data: [DONE]"
            assert any('"finish_reason":"stop"' in line for line in rest)  # whole, not cut short
            assert process.wait(20) == 0
            assert process.stdout.read() == "closed in order\n"
        finally:
            process.kill()
