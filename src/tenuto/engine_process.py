"""The engine's process: `python -m tenuto.engine_process FD`. No command for people: `wiring_process` starts it.

FD is one end of a socket pair that it inherited. The first message says what to load; then calls are answered until
the other end closes, which a parent that dies does too: then this process ends at once, whatever it is computing.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from typing import Any

import anyio
import structlog

from tenuto.clock import RealClock
from tenuto.config import Config
from tenuto.engine import LocalEngineClient
from tenuto.engine.boundary import EngineHost
from tenuto.entry import leave
from tenuto.errors import EngineClosed, TenutoError
from tenuto.event_loop import loop_options
from tenuto.offload import Offload

_SETTINGS_DEADLINE_S = 60.0  # the parent sends them before anything else
_LOADING_DEADLINE_S = 6 * 3600.0  # a huge model from a slow disk; the parent's user may end it sooner
_LEFT_TO_THE_PARENT = ("SIGINT", "SIGTERM", "SIGHUP")

_log = structlog.get_logger("tenuto.engine")


def main() -> None:
    # A service's signals often go to all of its processes. It is the parent that drains; it closes the socket then.
    for name in _LEFT_TO_THE_PARENT:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    # Between two steps the processors wait for this loop.
    anyio.run(_run, int(sys.argv[1]), backend_options=loop_options())


async def _run(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    gone: asyncio.Future[None] = loop.create_future()
    settings: asyncio.Future[dict[str, Any]] = loop.create_future()

    def lost(_: EngineClosed | None) -> None:
        if not gone.done():
            gone.set_result(None)

    def load(given: dict[str, Any]) -> None:
        if not settings.done():
            settings.set_result(given)

    host = EngineHost(RealClock(), on_load=load, on_lost=lost)
    await loop.create_unix_connection(lambda: host.link, sock=socket.socket(fileno=descriptor))
    host.begin()
    serving = asyncio.create_task(_serve(host, settings), name="tenuto-engine")
    await asyncio.wait([gone, serving], return_when=asyncio.FIRST_COMPLETED)
    if not gone.done():
        await asyncio.wait([gone], timeout=_SETTINGS_DEADLINE_S)  # for what was refused to be read
    leave(0)  # here, for nothing is to be saved: an orderly end would wait for the step in flight, or for loading


async def _serve(host: EngineHost, settings: asyncio.Future[dict[str, Any]]) -> None:
    """Load, then answer for ever. Returns after telling the parent that it cannot."""
    try:
        async with asyncio.timeout(_SETTINGS_DEADLINE_S):
            config = Config.load(**await settings)
        # In a thread of its own, so that a parent that goes away meanwhile is noticed.
        engine = await Offload("tenuto-load", 1).run(lambda: _load(config), _LOADING_DEADLINE_S)
        async with engine:
            await host.start(engine)
            await asyncio.Event().wait()
    except TenutoError as error:
        host.refuse(error)
    except OSError as error:  # files that cannot be read, full disks: said as `tenuto` says it
        host.refuse(TenutoError(error.strerror or str(error)))
    except Exception:  # noqa: BLE001 - logged, and told as what it is
        _log.exception("the engine could not be started")
        host.refuse(EngineClosed("the engine could not be started because of an internal error; its log says more"))


def _load(config: Config) -> LocalEngineClient:
    # These bring in torch: seconds in which the loop goes on.
    from tenuto.telemetry import configure_logs
    from tenuto.wiring import load, local_engine

    configure_logs(sys.stderr, config.log_format)
    clock = RealClock()
    return local_engine(load(config, clock), config, clock)


if __name__ == "__main__":
    main()
