"""Takes connections from a bound socket, within bounds from their first moment on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Collection
from contextlib import suppress

import structlog

from tenuto.server.connections import ConnectionConfig

_RETRY_S = 1.0  # after the system had no room for a connection
_SURPLUS = 128  # connections past the most that may still shake hands, to be told that there are too many

_log = structlog.get_logger("tenuto.server")


class Listener:
    """Stands for asyncio's own server, which neither counts connections whose TLS handshake is under way nor can be
    told how long that may take: who connects and says nothing would hold files until there are none left.

    Args:
        make: a protocol for a connection.
        connections: those that are open; handshakes are not among them.
    """

    def __init__(
        self,
        bound: socket.socket,
        make: Callable[[], asyncio.BaseProtocol],
        connections: Collection[object],
        config: ConnectionConfig,
    ) -> None:
        bound.listen(config.backlog)
        bound.setblocking(False)
        self._socket = bound
        self._make = make
        self._connections = connections
        self._config = config
        self._opening: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.create_task(self._accept(), name="tenuto-accept")

    def close(self) -> None:
        """Takes no more connections; those that are open go on."""
        self._accepting.cancel()
        for task in self._opening:
            task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.gather(self._accepting, *self._opening, return_exceptions=True)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connected, _ = await loop.sock_accept(self._socket)
            except ConnectionError:
                pass  # it went before it was taken
            except OSError as error:  # e.g. no files left
                _log.error("connections_not_taken", reason=error.strerror, num_open=len(self._connections))
                await asyncio.sleep(_RETRY_S)
            else:
                self._take(connected)
            await asyncio.sleep(0)  # one that is accepted at once has let nobody else run

    def _take(self, connected: socket.socket) -> None:
        if len(self._connections) + len(self._opening) >= self._config.limits.max_connections + _SURPLUS:
            connected.close()
            return
        task = asyncio.create_task(self._open(connected))
        self._opening.add(task)

        def opened(task: asyncio.Task[None]) -> None:
            self._opening.discard(task)
            if task.cancelled():
                connected.close()

        task.add_done_callback(opened)

    async def _open(self, connected: socket.socket) -> None:
        tls = self._config.ssl
        limits = self._config.limits
        # A goodbye waits for what was written before it, and that for a client that reads slowly.
        handshake_s, goodbye_s = (None, None) if tls is None else (limits.header_deadline_s, limits.send_deadline_s)
        loop = asyncio.get_running_loop()
        with suppress(OSError):  # no handshake, or not in time: it has been closed
            await loop.connect_accepted_socket(
                self._make, connected, ssl=tls, ssl_handshake_timeout=handshake_s, ssl_shutdown_timeout=goodbye_s
            )
