"""A server in a process of its own, and many streaming clients at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx

START_DEADLINE_S = 180.0
STOP_DEADLINE_S = 90.0
CHAT = "/v1/chat/completions"

SCRIPTED = """
import asyncio, sys
from tenuto.clock import RealClock
from tenuto.ids import IdSource
from tenuto.server import BoundAddress, Operations, ServerLimits, WebServer, create_app, serve
from tenuto.telemetry import configure_logs
from tenuto.testing.scripted_model import Reply, ScriptedModel

max_requests, num_pieces, delay_s, drain_s = (float(one) for one in sys.argv[1:])
configure_logs(sys.stderr, "json")
limits = ServerLimits(max_requests=int(max_requests), max_tenant_requests=int(max_requests))
model = ScriptedModel(lambda _: Reply("一二三" * int(num_pieces), piece_delay_s=delay_s))
app = create_app(model, served_names=("m",), clock=RealClock(), ids=IdSource(), operations=Operations(limits=limits))

async def main():
    server = WebServer(app, BoundAddress("127.0.0.1", 0), drain_deadline_s=drain_s, limits=limits)
    await serve(server, on_listening=lambda url: print("at", url, file=sys.stderr, flush=True))
    print("closed in order", file=sys.stderr, flush=True)

asyncio.run(main())
"""


@dataclass
class Served:
    """A running server; its standard error is read all the time, so that it never waits for us."""

    process: subprocess.Popen[str]
    url: str = ""
    lines: list[str] = field(default_factory=list)

    def rss_bytes(self) -> int:
        """Memory of the process that speaks HTTP."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]


@contextlib.contextmanager
def served(arguments: Sequence[str]) -> Iterator[Served]:
    """`python ARGUMENTS`, once it says where it listens."""
    process = subprocess.Popen([sys.executable, *arguments], stderr=subprocess.PIPE, text=True, encoding="utf-8")
    server = Served(process)
    listening = threading.Event()

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            server.lines.append(line)
            found = re.search(r" at (https?://[^\s/]+)", line) or re.search(r"^at (https?://\S+)", line)
            if found and not server.url:
                server.url = found[1]
                listening.set()
        listening.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        assert listening.wait(START_DEADLINE_S) and server.url, "".join(server.lines)
        yield server
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(STOP_DEADLINE_S)
        reader.join(STOP_DEADLINE_S)


@dataclass
class Streamed:
    """What one client saw."""

    status: int = 0
    retry_after: str | None = None
    ttft_s: float | None = None
    num_pieces: int = 0
    finish: str | None = None
    error: str | None = None  # code of an error event, or of the answer
    done: int = 0  # terminators

    @property
    def whole(self) -> bool:
        return self.status == 200 and self.finish is not None and self.error is None and self.done == 1

    @property
    def told(self) -> bool:
        """Broken off, and said so."""
        return self.error is not None and (self.status != 200 or self.done == 1)


async def stream(client: httpx.AsyncClient, body: dict[str, object], started: asyncio.Event | None = None) -> Streamed:
    seen = Streamed()
    begun = time.monotonic()
    async with client.stream("POST", CHAT, json={**body, "stream": True}) as response:
        seen.status = response.status_code
        seen.retry_after = response.headers.get("retry-after")
        if response.status_code != 200:
            seen.error = json.loads(await response.aread())["error"]["code"]
            return seen
        async for line in response.aiter_lines():
            if not line.startswith("data: "):
                continue
            if line == "data: [DONE]":
                seen.done += 1
                continue
            chunk = json.loads(line[6:])
            if "error" in chunk:
                seen.error = chunk["error"]["code"]
                continue
            choice = chunk["choices"][0]
            seen.finish = choice["finish_reason"] or seen.finish
            if choice["delta"].get("content"):
                seen.num_pieces += 1
                if seen.ttft_s is None:
                    seen.ttft_s = time.monotonic() - begun
                    if started is not None:
                        started.set()
    return seen


async def stream_many(url: str, bodies: Sequence[dict[str, object]]) -> list[Streamed]:
    """All at once, each on a connection of its own."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=url, timeout=600, limits=limits) as client:
        return await asyncio.gather(*(stream(client, body) for body in bodies))
