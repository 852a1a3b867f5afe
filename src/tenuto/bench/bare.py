"""A client that is little more than a socket, so that what is measured is the server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

from tenuto.bench.sse import ServerRefused
from tenuto.errors import TenutoError

_ANSWER_S = 600.0


class BareClient:
    """One connection, kept; one request at a time. The client of an SDK adds its own milliseconds to every request:
    it builds and checks objects, looks for proxies, takes a connection from a pool.

    It knows our own server only, which sends every event in a chunk of its own.

    Args:
        address: of the server; `http`, with a port.
    """

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        assert parts.scheme == "http" and parts.hostname is not None and parts.port is not None
        self._host, self._port = parts.hostname, parts.port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> BareClient:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._writer is not None
        self._writer.close()

    async def stream_events(self, url: str, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """The events of one answer, as they come.

        Raises ServerRefused, and TenutoError if the answer takes too long or breaks off.
        """
        assert self._reader is not None and self._writer is not None
        data = json.dumps(body).encode()
        head = f"POST {urlsplit(url).path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: application/json\r\n"
        self._writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        try:
            async with asyncio.timeout(_ANSWER_S):
                status, _, _ = (await self._reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
                if b" 200 " not in status:
                    raise ServerRefused(url, int(status.split()[1]), "")
                while size := int(await self._reader.readuntil(b"\r\n"), 16):
                    event = (await self._reader.readexactly(size + 2)).strip().removeprefix(b"data: ")
                    if event != b"[DONE]":
                        yield json.loads(event)
                await self._reader.readuntil(b"\r\n")
        except TimeoutError as error:
            raise TenutoError(f"{url} gave no whole answer within {_ANSWER_S:g} s") from error
        except (asyncio.IncompleteReadError, OSError) as error:
            raise TenutoError(f"{url} broke off") from error
