"""JSON values, one a line, from a process in another interpreter."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process

from tenuto.bench.peers.environment import PeerUnavailable, ended

_MAX_LINE = 1 << 22


async def json_objects(source: Process, log: Path) -> AsyncIterator[dict[str, Any]]:
    """Objects as they come, until the process closes its output; lines that are none are skipped: libraries talk.

    Raises PeerUnavailable if it ended with a failure, with the last words of its log.
    """
    assert source.stdout is not None
    rest = b""
    while True:
        try:
            rest += await source.stdout.receive()
        except anyio.EndOfStream:
            break
        *lines, rest = rest.split(b"\n")
        if len(rest) > _MAX_LINE:
            raise PeerUnavailable(f"a line of more than {_MAX_LINE} bytes came from the process of {log.name}")
        for line in lines:
            value = _parsed(line)
            if value is not None:
                yield value
    if await source.wait():
        raise ended(source, log)


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
