"""Exported sessions as bodies: sent piece by piece, and read within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from tenuto.errors import TenutoError
from tenuto.server.answers import EventStream
from tenuto.server.errors import kind_of
from tenuto.server.limits import ServerLimits

CONTENT_TYPE = "application/octet-stream"


class _Pieces:
    """Bytes as they come. What breaks them off breaks the connection: a whole export ends as one."""

    is_finished = True

    def pieces(self, event: bytes) -> list[bytes]:
        return [event]

    def end(self) -> bytes:
        return b""

    def failure(self, error: Exception) -> bytes:
        raise error


class ExportStream(EventStream):
    """An exported session. An error before the first piece has its own status."""

    def __init__(self, pieces: AsyncIterator[bytes], name: str, request_id: str, limits: ServerLimits) -> None:
        super().__init__(pieces, _Pieces(), request_id, limits)
        self.headers["content-type"] = CONTENT_TYPE
        self.headers["content-disposition"] = f'attachment; filename="{name}.session"'

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except TenutoError as error:
            if not self._opened:
                raise
            scope["state"]["record"].error = kind_of(error)
            # Half a session is out: to return without its end closes the connection.


async def import_body(
    request: Request, take: Callable[[AsyncIterator[bytes]], Awaitable[None]], limits: ServerLimits
) -> None:
    """Have `take` read the body as it arrives.

    Raises HTTPException 408, 413 or 415 if it is slow, large or of another type; ClientDisconnect; and what `take`
    raises.
    """
    bounds = limits.sessions
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    # Not a type that a page of another site may send without asking.
    if media_type != CONTENT_TYPE:
        raise HTTPException(415, f"the body must be an exported session: send the header Content-Type: {CONTENT_TYPE}")
    too_large = HTTPException(413, f"the exported session is larger than {bounds.max_import_bytes} bytes")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > bounds.max_import_bytes:
        raise too_large
    broken: list[Exception] = []  # told as it was, whatever became of it on its way through the engine

    async def pieces() -> AsyncIterator[bytes]:
        num_bytes = 0
        try:
            async for piece in request.stream():
                num_bytes += len(piece)
                if num_bytes > bounds.max_import_bytes:
                    raise too_large
                yield piece
        except Exception as error:
            broken.append(error)
            raise

    try:
        async with asyncio.timeout(bounds.import_deadline_s):
            await take(pieces())
    except TimeoutError as error:
        raise HTTPException(408, f"the session did not arrive within {bounds.import_deadline_s:g} s") from error
    except Exception:
        if broken:
            raise broken[0] from None
        raise
