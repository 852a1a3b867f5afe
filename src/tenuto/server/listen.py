"""Listens on an address, and stops in order: no new work, then a bounded time for the running requests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any

import structlog
import uvicorn
from fastapi import FastAPI

from tenuto.server.admission import Admission
from tenuto.server.bound import BoundAddress
from tenuto.server.connections import BoundedConnection, ConnectionConfig
from tenuto.server.limits import ServerLimits
from tenuto.server.listener import Listener

_CANCEL_DEADLINE_S = 5.0
_CLOSE_DEADLINE_S = 5.0  # for the connections to be closed, once nothing is open any more
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_log = structlog.get_logger("tenuto.server")


class WebServer:
    """An application on a bound address; connections are taken from `run` on.

    Args:
        app: made by `create_app`.
        address: it belongs to the server from now on.
        drain_deadline_s: how long running requests may go on after `stop`; what is left is cancelled.
        tls: None: no encryption.
        limits: those of connections; the ones of requests are the application's.
    """

    def __init__(
        self,
        app: FastAPI,
        address: BoundAddress,
        *,
        drain_deadline_s: float = 30.0,
        tls: ssl.SSLContext | None = None,
        limits: ServerLimits = ServerLimits(),
    ) -> None:
        self._admission: Admission = app.state.admission
        self._drain_deadline_s = drain_deadline_s
        self._scheme = "http" if tls is None else "https"
        self._draining: asyncio.Task[None] | None = None
        self._address = address
        self.port = address.port
        close_deadline_s = math.ceil(min(_CLOSE_DEADLINE_S, drain_deadline_s))
        self._server = _Server(ConnectionConfig(app, limits=limits, tls=tls, close_deadline_s=close_deadline_s))

    @property
    def url(self) -> str:
        host = self._address.host
        host = f"[{host}]" if ":" in host else host
        return f"{self._scheme}://{host}:{self.port}"

    async def run(self, on_listening: Callable[[str], None] = lambda _: None) -> None:
        """Serves until `stop`; calls `on_listening` with the URL once connections are taken.

        Raises ConfigError if another program began to listen on the address since it was bound.
        """
        self._server.on_started = lambda: on_listening(self.url)
        try:
            await self._server.serve(sockets=[self._address.socket])
        except _CannotListen as error:
            raise self._address.refused(error) from error
        finally:
            if self._draining is not None:
                self._draining.cancel()
            self._address.close()
            await self._cancel_running()

    def stop(self) -> None:
        """Drain and end; called again, end without waiting. Only on the loop that runs the server.

        While it drains, connections are still taken: who sends work is told to go elsewhere, and `/ready` says 503.
        """
        if self._draining is None:
            self._admission.begin_drain()
            self._draining = asyncio.get_running_loop().create_task(self._drain(), name="tenuto-drain")
        else:
            self._server.force_exit = self._server.should_exit = True

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(self._drain_deadline_s):
                await self._admission.idle()
        except TimeoutError:
            _log.warning("drain_overdue", deadline_s=self._drain_deadline_s, cancelled=self._admission.num_working)
            await self._cancel_running()
        self._server.should_exit = True

    async def _cancel_running(self) -> None:
        """Requests that outlived the drain end before `run` returns: after it the engine is closed."""
        running = list(self._server.server_state.tasks)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=_CANCEL_DEADLINE_S)


async def serve(
    server: WebServer,
    *,
    on_listening: Callable[[str], None] = lambda _: None,
    until: asyncio.Future[Any] | None = None,
) -> None:
    """Serves until SIGINT (Ctrl-C) or SIGTERM, then drains and returns, so that the caller can close the engine.

    So too when `until` ends, e.g. because there is no engine any more. A second signal ends the drain. Call it in the
    main thread, where signals arrive.
    """
    loop = asyncio.get_running_loop()
    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, server.stop)
    if until is not None:
        until.add_done_callback(lambda _: server.stop())
    try:
        await server.run(on_listening)
    finally:
        for number in _STOP_SIGNALS:
            loop.remove_signal_handler(number)


class _CannotListen(OSError):
    """The system refuses to listen on the bound socket."""


class _Server(uvicorn.Server):
    on_started: Callable[[], None]

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Left to `serve`: uvicorn raises a captured signal again after the drain, which would kill the process before
        the engine is closed."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Without an error of uvicorn's where clients did not close connections in time on which nothing ran."""
        log = logging.getLogger("uvicorn.error")
        log.addFilter(_tells_of_tasks)
        try:
            await super().shutdown(sockets)
        finally:
            log.removeFilter(_tells_of_tasks)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        config = self.config
        assert isinstance(config, ConnectionConfig)

        def connection() -> BoundedConnection:
            return BoundedConnection(config, self.server_state, self.lifespan.state)

        open_ones = self.server_state.connections
        # uvicorn closes them, and waits for that, as it would asyncio's servers.
        try:
            self.servers = [Listener(bound, connection, open_ones, config) for bound in sockets or ()]  # type: ignore[misc]
        except OSError as error:
            raise _CannotListen(*error.args) from error
        self.started = True
        self.on_started()


def _tells_of_tasks(record: logging.LogRecord) -> bool:
    """False for `Cancel 0 running task(s)`."""
    return record.args != (0,)
