"""A server over a scripted model: called in process, or listening on a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import anyio
import httpx
from fastapi import FastAPI

from tenuto.clock import RealClock
from tenuto.event_loop import loop_options
from tenuto.ids import IdSource
from tenuto.server import BoundAddress, Operations, ServerLimits, WebServer, create_app
from tenuto.testing.scripted_model import Script, ScriptedModel

CHAT = "/v1/chat/completions"
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "查天气",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def build(script: Script, limits: ServerLimits = ServerLimits(), seed: int = 1) -> tuple[ScriptedModel, FastAPI]:
    model = ScriptedModel(script)
    return model, app_over(model, limits, seed)


def app_over(model: Any, limits: ServerLimits = ServerLimits(), seed: int = 1) -> FastAPI:
    operations = Operations(limits=limits)
    return create_app(
        model, served_names=("smol", "org/smol"), clock=RealClock(), ids=IdSource(seed), operations=operations
    )


def call(app: FastAPI, method: str, path: str, **options: Any) -> httpx.Response:
    async def main() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://tenuto") as client:
            return await client.request(method, path, **options)

    return asyncio.run(main())


def chat(app: FastAPI, *messages: dict[str, Any], **fields: Any) -> httpx.Response:
    asked = list(messages) or [{"role": "user", "content": "北京今天天气怎么样？"}]
    return call(app, "POST", CHAT, json={"model": "smol", "messages": asked, **fields})


def events(response: httpx.Response) -> list[Any]:
    """The data of a stream's events; the terminator as the string it is."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.text.endswith("\n\n")
    lines = response.text.removesuffix("\n\n").split("\n\n")
    assert all(line.startswith("data: ") for line in lines)
    data = [line.removeprefix("data: ") for line in lines]
    return [one if one == "[DONE]" else json.loads(one) for one in data]


def noted(logs: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """What was logged besides the one line of each request."""
    return [entry for entry in logs if entry["event"] != "request"]


@dataclass
class Live:
    """A listening server, in a thread of its own."""

    model: ScriptedModel
    server: WebServer
    stop: Callable[[], None]  # from any thread

    @property
    def url(self) -> str:
        return self.server.url


@contextlib.contextmanager
def live(
    script: Script,
    limits: ServerLimits = ServerLimits(),
    *,
    tls: ssl.SSLContext | None = None,
    drain_deadline_s: float = 20,
    on_asyncio: bool = False,
) -> Iterator[Live]:
    """On the event loop that `tenuto serve` has here, or on asyncio's own."""
    model, app = build(script, limits)
    server = WebServer(app, BoundAddress("127.0.0.1", 0), drain_deadline_s=drain_deadline_s, tls=tls, limits=limits)
    listening = threading.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def main() -> None:
        loops.append(asyncio.get_running_loop())
        await server.run(lambda _: listening.set())

    def stop() -> None:
        loops[0].call_soon_threadsafe(server.stop)

    loop = {} if on_asyncio else loop_options()
    thread = threading.Thread(target=lambda: anyio.run(main, backend_options=loop))
    thread.start()
    try:
        assert listening.wait(20)
        yield Live(model, server, stop)
    finally:
        with contextlib.suppress(RuntimeError):  # it ended already
            stop()
        thread.join(drain_deadline_s + 15)
        assert not thread.is_alive()


def until(condition: Callable[[], bool], deadline_s: float = 10) -> None:
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)
