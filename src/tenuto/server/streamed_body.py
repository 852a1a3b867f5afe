"""The short way of an answer's pieces to their socket.

Through ASGI each piece of a stream passes every middleware and h11's state machine, which all have nothing to do with
it: 50 µs for a token. So a connection offers this beside ASGI, to who has sent an answer's head: see `put_of`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import h11
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import RequestResponseCycle

from tenuto.server.disconnect import ClientGone

Put: TypeAlias = Callable[[bytes], Awaitable[None]]

_EXTENSION = "tenuto.streamed_body"


def put_of(scope: Scope) -> Put | None:
    """Sends one piece of the body of the answer to this request, in whose head no length was told; between that head
    and the last `http.response.body`, which go through ASGI. None: its server has no such way.

    It waits while the client does not take what was sent before; who takes nothing for too long is disconnected. Raises
    ClientGone once the client has gone.
    """
    put: Put | None = scope.get("extensions", {}).get(_EXTENSION)
    return put


def offering(app: ASGIApp, cycle: Callable[[], RequestResponseCycle]) -> ASGIApp:
    """The application, with the short way in the scope of its requests.

    Args:
        cycle: of the request that begins.
    """

    async def offered(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "HEAD":  # its answer has no body
            scope["extensions"] = {_EXTENSION: StreamedBody(cycle()).put}
        await app(scope, receive, send)

    return offered


class StreamedBody:
    """Frames pieces as h11 would: its state does not change from the head of an answer until the end of its body."""

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        # To HTTP/1.0 the end of the connection is the end of the body.
        self._is_chunked = cycle.scope["http_version"] == "1.1"

    async def put(self, piece: bytes) -> None:
        cycle = self._cycle
        if cycle.flow.write_paused and not cycle.disconnected:
            await cycle.flow.drain()
        if cycle.disconnected:
            raise ClientGone
        assert cycle.conn.our_state is h11.SEND_BODY, "a piece belongs between an answer's head and its end"
        if piece:  # an empty chunk would be the end
            cycle.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if self._is_chunked else piece)
