"""The part of the composition root that puts the engine into a process of its own. It needs no torch: only that
process loads the weights."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
from pydantic import SecretStr

from tenuto.chat import OnBrokenOff, nobody
from tenuto.clock import Clock, RealClock
from tenuto.config import Config
from tenuto.engine.boundary import RemoteEngineClient
from tenuto.errors import ConfigError, ModelFileError
from tenuto.ids import IdSource
from tenuto.wiring_text import RunningModel, chatting, find_model, load_text

_END_DEADLINE_S = 10.0
_STDERR = 2


@asynccontextmanager
async def engine_process(settings: Mapping[str, Any], clock: Clock) -> AsyncIterator[RemoteEngineClient]:
    """A process that loads an engine; await the client's `ready`. It ends, at the latest by force, with the block.

    It is in a session of its own, so that Ctrl-C reaches this process only. Its log goes to this process's standard
    error.

    Args:
        settings: of the engine, by name; see `settings_of`.

    Raises ConfigError where there are no Unix sockets.
    """
    if os.name != "posix":
        raise ConfigError("setting engine_process (TENUTO_ENGINE_PROCESS): needs Unix sockets; set it to false")
    ours, theirs = socket.socketpair()
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # not the current folder first: a file there may have the name of a library
            "-m",
            "tenuto.engine_process",
            str(theirs.fileno()),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=_STDERR,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    client = RemoteEngineClient(clock, explain=lambda: _how_it_ended(process))
    try:
        await asyncio.get_running_loop().create_unix_connection(lambda: client.link, sock=ours)
        client.load(dict(settings))
        yield client
    finally:
        await client.aclose()
        with anyio.CancelScope(shield=True):
            await _end(process)


@asynccontextmanager
async def serving_model(
    config: Config, clock: Clock, ids: IdSource, on_broken_off: OnBrokenOff
) -> AsyncIterator[RunningModel]:
    """Load a model and chat with it as a server does: the engine apart, unless the settings or the system say no."""
    apart = os.name == "posix" if config.engine_process is None else config.engine_process
    if apart:
        async with running_apart(config, clock=clock, ids=ids, on_broken_off=on_broken_off) as started:
            yield started
    else:
        from tenuto.wiring import load, running

        loaded = await anyio.to_thread.run_sync(load, config, clock)
        async with running(loaded, config, clock=clock, ids=ids, on_broken_off=on_broken_off) as started:
            yield started


@asynccontextmanager
async def running_apart(
    config: Config,
    *,
    clock: Clock | None = None,
    ids: IdSource | None = None,
    on_broken_off: OnBrokenOff = nobody,
) -> AsyncIterator[RunningModel]:
    """Load a model, its text here and its weights in a process of their own, and chat with it.

    Raises what `wiring.load` raises.
    """
    clock, ids = clock or RealClock(), ids or IdSource()
    path = await anyio.to_thread.run_sync(find_model, config)
    config = config.model_copy(update={"model": str(path)})
    async with engine_process(settings_of(config), clock) as engine:
        loaded = await anyio.to_thread.run_sync(load_text, config, clock)
        info = await engine.ready()
        if info.fingerprint != loaded.fingerprint:
            raise ModelFileError(f"{path}: the file was changed while it was being loaded; start again")
        async with chatting(loaded, engine, config, clock=clock, ids=ids, on_broken_off=on_broken_off) as started:
            yield replace(started, ended=engine.ended)


def settings_of(config: Config) -> dict[str, Any]:
    """All settings as plain values, but for secrets: the engine needs none."""
    plain = config.model_dump(mode="json")
    return {name: value for name, value in plain.items() if not _is_secret(getattr(config, name))}


def _is_secret(value: object) -> bool:
    if isinstance(value, dict):
        return any(_is_secret(one) for one in value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return any(_is_secret(one) for one in value)
    return isinstance(value, SecretStr)


async def _how_it_ended(process: asyncio.subprocess.Process) -> str:
    try:
        async with asyncio.timeout(_END_DEADLINE_S):
            status = await process.wait()
    except TimeoutError:
        return "it closed its end of the connection and runs on"
    if status >= 0:
        return f"its exit status was {status}"
    why = "; the system does so when memory runs out" if -status == signal.SIGKILL else ""
    return f"killed by signal {-status} ({signal.strsignal(-status)}){why}"


async def _end(process: asyncio.subprocess.Process) -> None:
    """It ends by itself when the connection closes; if not, by force."""
    try:
        async with asyncio.timeout(_END_DEADLINE_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
