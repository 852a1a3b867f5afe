"""Our own server in a process of its own, for as long as it is measured."""

from __future__ import annotations

import asyncio
import re
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.text import TextReceiveStream

from tenuto.config import Config
from tenuto.errors import TenutoError

_START_S = 300.0
_STOP_S = 60.0
_KEPT_LINES = 20


@asynccontextmanager
async def served(config: Config) -> AsyncIterator[str]:
    """`tenuto serve` with these settings, on a free port of this machine; yields the address, up to and with `/v1`.

    Raises TenutoError with its last lines if it does not come up.
    """
    process = await anyio.open_process([sys.executable, "-m", "tenuto", "serve", *_options(config)], stdout=None)
    try:
        assert process.stderr is not None
        lines = _Lines(process.stderr)
        # No task group: what the caller raises would come out of it as a group of errors.
        reading = asyncio.create_task(lines.read())
        try:
            yield await lines.address()
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process)
            reading.cancel()
            await asyncio.wait([reading])
    finally:
        await process.aclose()


def _options(config: Config) -> list[str]:
    chosen = {
        "--host": "127.0.0.1",
        "--port": "0",
        "--model": str(config.model),
        "--precision": config.precision,
        "--kv-type": config.kv_type,
        "--speculation": config.speculation,
        "--kv-tokens": str(config.kv_tokens),
        "--threads": None if config.num_threads is None else str(config.num_threads),
    }
    return [word for name, value in chosen.items() if value is not None for word in (name, value)]


async def _end(process: Process) -> None:
    with anyio.move_on_after(_STOP_S):
        if process.returncode is None:
            process.terminate()
        await process.wait()
    if process.returncode is None:
        process.kill()


class _Lines:
    """What the process says, to its end, so that it never waits for a reader. The address is in one of the lines."""

    def __init__(self, stream: ByteReceiveStream) -> None:
        self._stream = TextReceiveStream(stream, errors="replace")
        self._last: deque[str] = deque(maxlen=_KEPT_LINES)
        self._found = anyio.Event()
        self._address: str | None = None

    async def read(self) -> None:
        rest = ""
        async for text in self._stream:
            *lines, rest = (rest + text).split("\n")
            for line in lines:
                self._last.append(line)
                match = re.search(r"https?://[^\s\"]+", line)
                if match and self._address is None:
                    self._address = match.group(0)
                    self._found.set()
        self._found.set()

    async def address(self) -> str:
        with anyio.move_on_after(_START_S):
            await self._found.wait()
        if self._address is None:
            raise TenutoError("the server did not come up:\n" + "\n".join(self._last))
        return self._address
