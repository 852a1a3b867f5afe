"""How an answer leaves: whole as JSON, or in pieces as server-sent events; the work stops when its client goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import aclosing
from typing import Any, Protocol, TypeVar, cast

from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from tenuto.server.description import json_content
from tenuto.server.disconnect import ClientGone, until_disconnect
from tenuto.server.errors import STOPPING, log_disconnect, log_if_unexpected
from tenuto.server.limits import ServerLimits
from tenuto.server.streamed_body import put_of

T = TypeVar("T")
E_contra = TypeVar("E_contra", contravariant=True)

STREAM_CONTENT: dict[str, Any] = {"text/event-stream": {"schema": {"type": "string"}}}


def body_documentation(kind: type[BaseModel]) -> dict[str, Any]:
    """For `openapi_extra`: the body of a route that reads it itself, under limits. The description of the whole
    application holds the schemas of all such bodies."""
    return {"requestBody": {"required": True, "content": json_content(kind)}}


async def whole_answer(request: Request, work: Coroutine[Any, Any, Any], limits: ServerLimits) -> Response:
    """What `work` gives, as JSON unless it is that already; it is cancelled when the client goes. Raises what it
    raises."""
    try:
        body = await until_disconnect(request.receive, work, limits.cancel_deadline_s)
    except ClientGone:
        log_disconnect(request.state.request_id)
        return Response(status_code=499)  # nobody reads it
    return Response(body, media_type="application/json") if isinstance(body, bytes) else JSONResponse(body)


class StreamWriter(Protocol[E_contra]):
    """Puts an answer's events into the words of one API."""

    @property
    def is_finished(self) -> bool:
        """Whether the answer is whole."""
        ...

    def pieces(self, event: E_contra) -> list[bytes]:
        """An event's server-sent events, possibly none."""
        ...

    def end(self) -> bytes:
        """What closes a stream whose answer is whole; empty if its last event does."""
        ...

    def failure(self, error: Exception) -> bytes:
        """What closes a stream that breaks off: says why, as far as clients may know, and ends it."""
        ...


async def written(events: AsyncIterator[T], writer: StreamWriter[T], request_id: str) -> AsyncGenerator[bytes, None]:
    """An answer in pieces, one for each event that says something, closed by exactly one end.

    An error before the first piece is raised, while the status can still say so; a later one is written.
    """
    opened = False
    try:
        async with aclosing(closable(events)):
            async for event in events:
                if pieces := writer.pieces(event):
                    opened = True
                    yield b"".join(pieces)
            assert writer.is_finished, "a model's stream ends when each choice has its last event"
    except Exception as error:
        if not opened:
            raise
        log_if_unexpected(error, request_id)
        yield writer.failure(error)
        return
    if end := writer.end():
        yield end


def closable(events: AsyncIterator[T]) -> AsyncGenerator[T, None]:
    """The protocols promise iterators whose closing cancels; only their type says less."""
    return cast("AsyncGenerator[T, None]", events)


class EventStream(StreamingResponse):
    """Sends an answer's pieces as they come, and closes their source at once when the client goes.

    The status is sent with the first piece, so what is raised before it is answered like any other error.
    """

    def __init__(
        self, events: AsyncIterator[T], writer: StreamWriter[T], request_id: str, limits: ServerLimits
    ) -> None:
        self._pieces = written(events, writer, request_id)
        # X-Accel-Buffering: a proxy in between must not hold the pieces back.
        super().__init__(
            self._pieces,
            media_type="text/event-stream",
            headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
        )
        self._failure = writer.failure
        self._request_id = request_id
        self._limits = limits
        self._opened = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await until_disconnect(receive, self._send(scope, send), self._limits.cancel_deadline_s)
        except ClientGone:
            log_disconnect(self._request_id)
        except asyncio.CancelledError:
            if not self._opened:
                raise
            # The server stops and will not wait any longer: even this stream ends as streams end.
            scope["state"]["record"].error = STOPPING.code
            last = self._failure(STOPPING)
            await self._tell(send, {"type": "http.response.body", "body": last, "more_body": False})

    async def _send(self, scope: Scope, send: Send) -> None:
        async def put_slowly(piece: bytes) -> None:
            await self._tell(send, {"type": "http.response.body", "body": piece, "more_body": True})

        put = put_of(scope) or put_slowly
        async with aclosing(self._pieces) as pieces:
            async for piece in pieces:
                if not self._opened:
                    self._opened = True
                    await self._tell(send, {"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                await put(piece)
        await self._tell(send, {"type": "http.response.body", "body": b"", "more_body": False})

    async def _tell(self, send: Send, message: Message) -> None:
        try:
            async with asyncio.timeout(self._limits.send_deadline_s):
                await send(message)
        except TimeoutError as error:
            raise ClientGone from error
