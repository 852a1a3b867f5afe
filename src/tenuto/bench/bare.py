"""A client that is little more than a socket, so that what is measured is the server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import msgspec

from tenuto.bench.sse import ServerRefused
from tenuto.errors import TenutoError

_ANSWER_S = 600.0
_READ_BYTES = 1 << 16
_DONE = b"data: [DONE]"


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

    It knows our own server only, whose chunks hold whole events.

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
                async for chunk in self._chunks():
                    for event in chunk.split(b"\n\n"):
                        if event and event != _DONE:
                            yield msgspec.json.decode(event.removeprefix(b"data: "))
        except TimeoutError as error:
            raise TenutoError(f"{url} gave no whole answer within {_ANSWER_S:g} s") from error
        except (asyncio.IncompleteReadError, OSError) as error:
            raise TenutoError(f"{url} broke off") from error

    async def _chunks(self) -> AsyncIterator[bytes]:
        """Of a body, up to its end."""
        rest = b""
        while True:
            rest += await self._reader.read(_READ_BYTES)
            while (end := rest.find(b"\r\n")) >= 0:
                start, size = end + 2, int(rest[:end], 16)
                if len(rest) < start + size + 2:
                    break
                if not size:
                    return
                yield rest[start : start + size]
                rest = rest[start + size + 2 :]
            if self._reader.at_eof():
                raise asyncio.IncompleteReadError(rest, None)
