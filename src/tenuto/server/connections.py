"""Connections with bounds: how many, how long a request's head may take, how long a client may read nothing."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import h11
import msgspec
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from tenuto.server.errors import error_body
from tenuto.server.gathering import GatheringTransport
from tenuto.server.limits import ServerLimits
from tenuto.server.streamed_body import offering

_LINGER_S = 5.0  # for what was written to leave once a connection is to be closed


class ConnectionConfig(uvicorn.Config):
    """uvicorn's settings, with ours beside them."""

    def __init__(
        self, app: ASGIApp, *, limits: ServerLimits, tls: ssl.SSLContext | None, close_deadline_s: int
    ) -> None:
        super().__init__(
            app,
            http=BoundedConnection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=close_deadline_s,
            ssl_context_factory=None if tls is None else lambda *_: tls,
        )
        self.limits = limits


class BoundedConnection(H11Protocol):
    """One connection. uvicorn bounds how long it may idle between requests; this adds the other bounds.

    A head that comes a byte at a time holds its connection no longer than `header_deadline_s` in all; so does the rest
    of a body that nobody wants, after its answer. Bodies that are wanted have a deadline where they are read.
    """

    config: ConnectionConfig

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.app = offering(self.app, lambda: self.cycle)
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(GatheringTransport(transport, self.loop))
        limits = self.config.limits
        if len(self.connections) > limits.max_connections:
            message = f"{limits.max_connections} connections are open already; try again later"
            self._refuse(503, "Service Unavailable", message, "too_many_connections")
            return
        self._head_timer = self.loop.call_later(limits.header_deadline_s, self._close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        self._stop_write_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(self.config.limits.send_deadline_s, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_write_timer()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        if not self.transport.is_closing():
            self.conn.send(h11.ConnectionClosed())
            self._close()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "Bad Request", msg, "invalid_http")

    def _watch_head(self) -> None:
        """The timer runs from the first byte after an answer until the next request's head is whole."""
        idle = not self.conn.trailing_data[0] and self.conn.their_state is not h11.SEND_BODY
        if not self._is_answered or (self.cycle is not None and idle):
            self._stop_head_timer()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(self.config.limits.header_deadline_s, self._close)

    def _close(self) -> None:
        if self.transport.is_closing():
            return
        self.transport.close()
        # What was written has so long to leave, and with TLS the client to say goodbye too.
        self._stop_write_timer()
        self._write_timer = self.loop.call_later(_LINGER_S, self.transport.abort)

    @property
    def _is_answered(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _refuse(self, status: int, phrase: str, message: str, code: str) -> None:
        """Where no route could answer; then the connection ends. In the middle of an answer it just ends."""
        if self._is_answered and not self.transport.is_closing():
            kind = "server_error" if status >= 500 else "invalid_request_error"
            body = msgspec.json.encode(error_body(message, kind, code))
            retry = f"Retry-After: {self.config.limits.retry_after_s}\r\n" if status == 503 else ""
            head = (
                f"HTTP/1.1 {status} {phrase}\r\nContent-Type: application/json\r\nConnection: close\r\n"
                f"{retry}Content-Length: {len(body)}\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        self._close()

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
