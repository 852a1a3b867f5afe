"""The client that is little more than a socket says what httpx says."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from server_harness import live

from tenuto.bench.bare import bare_client
from tenuto.bench.sse import ServerRefused, stream_events
from tenuto.errors import TenutoError
from tenuto.testing.scripted_model import Reply

BODY = {"model": "smol", "messages": [{"role": "user", "content": "北京今天天气怎么样？"}], "stream": True}
PATH = "/v1/chat/completions"


def stripped(events: list[dict[str, Any]]) -> list[Any]:
    return [event["choices"] for event in events]


def test_the_same_events_again_and_again_on_one_connection():
    async def main(url: str) -> None:
        async with bare_client(url) as bare, httpx.AsyncClient(trust_env=False) as http:
            expected = [event async for event in stream_events(http, url + PATH, BODY)]
            assert len(expected) > 5
            for _ in range(3):
                assert stripped([e async for e in bare.stream_events(url + PATH, BODY)]) == stripped(expected)

    with live(lambda _: Reply("晴，二十五度。\n\n出门不用带伞。", piece_delay_s=0.002)) as server:
        asyncio.run(main(server.url))
    with live(lambda _: Reply("晴，二十五度。\n\n出门不用带伞。")) as server:  # all at once
        asyncio.run(main(server.url))


def test_refusals_and_breaks_are_told():
    async def refused(url: str) -> None:
        async with bare_client(url) as bare:
            with pytest.raises(ServerRefused, match="status 400"):
                _ = [event async for event in bare.stream_events(url + PATH, {**BODY, "messages": []})]

    with live(lambda _: "好") as server:
        asyncio.run(refused(server.url))

    async def broken() -> None:
        async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n9\r\ndata: {}\n\r\n5\r\nda")
            writer.close()

        server = await asyncio.start_server(half, "127.0.0.1", 0)
        async with server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            seen = []
            async with bare_client(url) as bare:
                with pytest.raises(TenutoError, match="broke off"):
                    async for event in bare.stream_events(url + PATH, BODY):
                        seen.append(event)
            assert seen == [{}]

    asyncio.run(broken())
