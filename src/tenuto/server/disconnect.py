"""Work that stops as soon as its client has gone."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import structlog
from starlette.types import Receive

T = TypeVar("T")

_log = structlog.get_logger("tenuto.server")


class ClientGone(Exception):
    """The client closed its connection, or takes nothing of what is sent; there is nobody to answer."""


async def until_disconnect(receive: Receive, work: Coroutine[Any, Any, T], cancel_deadline_s: float) -> T:
    """The result of `work`, run as a task that is cancelled, once, when the client goes or the caller is cancelled.

    A task of its own, because one plain cancellation lets the model's stream await in its own clean-up, which a
    cancel scope would interrupt again at every await. The request's body must have been read.

    Raises ClientGone, and whatever `work` raises.
    """
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientGone
    finally:
        await _end((working, leaving), cancel_deadline_s)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _end(tasks: tuple[asyncio.Task[Any], ...], deadline_s: float) -> None:
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if not running:
        return
    ended, stuck = await asyncio.wait(running, timeout=deadline_s)
    if stuck:
        _log.error("cancel_overdue", deadline_s=deadline_s)
    for task in ended:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("cancel_failed", error=type(error).__name__)
