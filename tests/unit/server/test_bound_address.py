"""An address that is taken early: told at once if it cannot be had, and nobody else's from then on."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing

import httpx
import pytest
from server_harness import build, live

from tenuto.errors import ConfigError
from tenuto.server import BoundAddress, WebServer

HOST = "127.0.0.1"


def test_a_taken_address_is_a_clear_error():
    with live([]) as server, pytest.raises(ConfigError, match=rf"{HOST} port {server.server.port}: .*--port"):
        BoundAddress(HOST, server.server.port)


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host", "::ffff:zz"])
def test_an_address_that_is_not_this_machines_is_a_clear_error(host: str):
    with pytest.raises(ConfigError, match="cannot listen on"):
        BoundAddress(host, 0)


def test_nobody_is_kept_waiting_before_the_server_runs_and_the_socket_that_was_bound_then_listens():
    async def main() -> None:
        address = BoundAddress(HOST, 0)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOST, address.port), timeout=5)
        with pytest.raises(OSError, match="in use"), closing(socket.socket()) as other:
            other.bind((HOST, address.port))
        server = WebServer(build([])[1], address)
        listening = asyncio.Event()
        running = asyncio.create_task(server.run(lambda _: listening.set()))
        await listening.wait()
        async with httpx.AsyncClient() as client:
            assert (await client.get(f"http://{HOST}:{address.port}/health")).status_code == 200
        server.stop()
        await asyncio.wait_for(running, 10)
        with closing(BoundAddress(HOST, address.port)):
            pass

    asyncio.run(main())


def test_who_listens_second_is_told_and_frees_the_address():
    """Two servers that start at the same time may both bind: the system lets the first one listen."""

    async def main() -> None:
        with closing(socket.socket()) as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind((HOST, 0))
            port = other.getsockname()[1]
            try:
                address = BoundAddress(HOST, port)
            except ConfigError:
                return  # another system than Linux: told even earlier
            other.listen()
            with pytest.raises(ConfigError, match=f"port {port}"):
                await WebServer(build([])[1], address).run()
        assert address.socket.fileno() == -1

    asyncio.run(main())
