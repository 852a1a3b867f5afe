"""Listens on an address, and stops in order: no new connections, then a bounded time for the running requests."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn
from starlette.types import ASGIApp

from tenuto.errors import ConfigError

_CANCEL_DEADLINE_S = 5.0
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class WebServer:
    """An application on a bound address; connections are taken from `run` on.

    Args:
        port: 0 takes a free one; `port` and `url` then say which.
        drain_deadline_s: how long running requests may go on after `stop`; what is left is cancelled.

    Raises ConfigError if the address cannot be had.
    """

    def __init__(self, app: ASGIApp, *, host: str, port: int, drain_deadline_s: float = 30.0) -> None:
        self._socket = _bind(host, port)
        self.host = host
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=math.ceil(drain_deadline_s),
        )
        self._server = _Server(config)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    async def run(self, on_listening: Callable[[str], None] = lambda _: None) -> None:
        """Serves until `stop`; calls `on_listening` with the URL once connections are taken."""
        self._server.on_started = lambda: on_listening(self.url)
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            self._socket.close()
            await self._cancel_running()

    async def _cancel_running(self) -> None:
        """Requests that outlived the drain end before `run` returns: after it the engine is closed."""
        running = list(self._server.server_state.tasks)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=_CANCEL_DEADLINE_S)

    def stop(self) -> None:
        """Drain and end; called again, end without waiting."""
        self._server.force_exit = self._server.should_exit
        self._server.should_exit = True


async def serve(
    app: ASGIApp,
    host: str,
    port: int,
    *,
    drain_deadline_s: float = 30.0,
    on_listening: Callable[[str], None] = lambda _: None,
) -> None:
    """Serves until SIGINT (Ctrl-C) or SIGTERM, then drains and returns, so that the caller can close the engine.

    A second signal ends the drain. Call it in the main thread, where signals arrive. Raises ConfigError if the
    address cannot be had.
    """
    server = WebServer(app, host=host, port=port, drain_deadline_s=drain_deadline_s)
    loop = asyncio.get_running_loop()
    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, server.stop)
    try:
        await server.run(on_listening)
    finally:
        for number in _STOP_SIGNALS:
            loop.remove_signal_handler(number)


class _Server(uvicorn.Server):
    on_started: Callable[[], None]

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Left to `serve`: uvicorn raises a captured signal again after the drain, which would kill the process before
        the engine is closed."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.on_started()


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host} port {port}: {error.strerror or error}; choose another with --host and --port"
        ) from error
    # Named as TCP: only then does asyncio switch Nagle's algorithm off for the connections, which would hold each small
    # piece of an answer back until the client has confirmed the one before, by 40 ms or more.
    return socket.socket(family, bound.type, socket.IPPROTO_TCP, fileno=bound.detach())
