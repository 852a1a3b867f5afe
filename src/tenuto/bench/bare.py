"""A client that is little more than a socket, so that what is measured is the server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from tenuto.bench.sse import ServerRefused
from tenuto.errors import TenutoError

_ANSWER_S = 600.0


@asynccontextmanager
async def bare_client(address: str) -> AsyncIterator[BareClient]:
    """A connection to a server, closed at the end of the block.

    Args:
        address: `http`, with a port.
    """
    parts = urlsplit(address)
    assert parts.scheme == "http" and parts.hostname is not None and parts.port is not None
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        yield BareClient(parts.hostname, reader, writer)
    finally:
        writer.close()


class BareClient:
    """One connection, kept; one request at a time. The client of an SDK adds its own milliseconds to every request:
    it builds and checks objects, looks for proxies, takes a connection from a pool.

    It knows our own server only, which sends every event in a chunk of its own.

    Args:
        host: of the server, for its requests' heads.
    """

    def __init__(self, host: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._host = host
        self._reader = reader
        self._writer = writer

    async def stream_events(self, url: str, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """The events of one answer, as they come.

        Raises ServerRefused, and TenutoError if the answer takes too long or breaks off.
        """
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
