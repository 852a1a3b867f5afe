"""One client of the server as an ASGI application: sends its body in pieces, reads at its own pace, and may leave."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

from fastapi import FastAPI


@dataclass(frozen=True)
class Leave:
    """When the client goes: after so many pieces of its body, so many seconds, or so many pieces of the answer."""

    kind: Literal["body", "time", "answer"]
    after: float


@dataclass(eq=False)
class Visit:
    route: str  # method and path as the description has it
    method: str
    path: str
    query: str = ""
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=lambda: [b""])  # of the body
    gap_s: float = 0.0  # before each of them
    pace_s: float = 0.0  # that the client takes for a piece of the answer
    start_s: float = 0.0
    leave: Leave | None = None
    tenant: str = ""
    sent: Any = None  # the body as a value, where it is a sound one
    # What came of it:
    status: int | None = None
    answer_headers: dict[str, str] = field(default_factory=dict)
    answer: list[bytes] = field(default_factory=list)
    whole: bool = False
    left: str | None = None  # at which stage it went, or was given up by the server
    left_s: float = 0.0  # on the loop's clock
    end_s: float = 0.0  # when the application was done with it
    error: BaseException | None = None  # that came out of the application

    @property
    def body(self) -> bytes:
        return b"".join(self.answer)

    def __str__(self) -> str:
        asked = b"".join(self.pieces)
        came = f"{self.status} {self.body[-600:]!r}"
        return f"{self.method} {self.path}?{self.query} of {self.tenant!r} {asked[:1500]!r} {self.leave} → {came}"


async def pay(visit: Visit, app: FastAPI) -> Visit:
    """Make the visit."""
    await asyncio.sleep(visit.start_s)
    loop, gone, sent = asyncio.get_running_loop(), asyncio.Event(), 0

    def go(stage: str) -> None:
        if not gone.is_set():
            visit.left, visit.left_s = stage, loop.time()
            gone.set()

    async def pause(seconds: float) -> None:
        """As long as the client stays."""
        if not seconds:
            await asyncio.sleep(0)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await gone.wait()

    async def receive() -> dict[str, Any]:
        nonlocal sent
        leave = visit.leave
        if leave is not None and leave.kind == "body" and sent >= min(leave.after, len(visit.pieces) - 1):
            go("body")
        if sent == len(visit.pieces) or gone.is_set():
            await gone.wait()
            return {"type": "http.disconnect"}
        if visit.gap_s:
            await pause(visit.gap_s)
            if gone.is_set():
                return {"type": "http.disconnect"}
        piece, sent = visit.pieces[sent], sent + 1
        return {"type": "http.request", "body": piece, "more_body": sent < len(visit.pieces)}

    async def send(message: dict[str, Any]) -> None:
        if gone.is_set():
            return  # as servers do
        if message["type"] == "http.response.start":
            assert visit.status is None, "two answers to one request"
            visit.status = message["status"]
            visit.answer_headers = {k.decode().lower(): v.decode("latin-1") for k, v in message["headers"]}
            return
        assert visit.status is not None and not visit.whole, "a body without its head, or past its end"
        visit.answer.append(message.get("body", b""))
        visit.whole = not message.get("more_body", False)
        if visit.leave is not None and visit.leave.kind == "answer" and len(visit.answer) > visit.leave.after:
            go("first piece" if len(visit.answer) == 1 else "mid-stream")
        try:
            await pause(visit.pace_s)
        except asyncio.CancelledError:
            go("slow reader")
            raise

    timer: asyncio.TimerHandle | None = None
    if visit.leave is not None and visit.leave.kind == "time":

        def go_now() -> None:
            go("body" if sent < len(visit.pieces) else "waiting" if not visit.answer else "mid-stream")

        timer = loop.call_later(visit.leave.after, go_now)
    try:
        await app(_scope(visit), receive, send)
    except Exception as error:  # noqa: BLE001 - judged afterwards
        visit.error = error
    finally:
        visit.end_s = loop.time()
        if timer is not None:
            timer.cancel()
    return visit


def _scope(visit: Visit) -> dict[str, Any]:
    return {
        "type": "http",
        "method": visit.method,
        "path": visit.path,
        "raw_path": quote(visit.path).encode(),
        "query_string": visit.query.encode(),
        "headers": visit.headers,
        "http_version": "1.1",
        "scheme": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
        "root_path": "",
    }
