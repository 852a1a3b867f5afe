"""Blocking work kept off the event loop, so that one caller's heavy request does not stop the others."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from tenuto.errors import QueueFull

T = TypeVar("T")


class Offload:
    """Runs functions in threads, at most `max_threads` at once; others wait for a free one.

    The threads are daemons: Python cannot stop one, and a function that never ends must not keep the process alive.
    For the same reason such a function holds its place until it ends, whoever waits for it.
    """

    def __init__(self, name: str, max_threads: int) -> None:
        self._name = name
        self._places = asyncio.Semaphore(max_threads)

    async def run(self, function: Callable[[], T], timeout_s: float) -> T:
        """The function's result.

        Raises what it raises, TimeoutError (waiting for a free thread counts), and QueueFull if the system is out of
        threads.
        """
        async with asyncio.timeout(timeout_s):
            await self._places.acquire()
            loop = asyncio.get_running_loop()
            future: asyncio.Future[T] = loop.create_future()

            def settle(result: Any, error: BaseException | None) -> None:
                self._places.release()
                if future.done():
                    return
                if error is None:
                    future.set_result(result)
                else:
                    future.set_exception(error)

            def work() -> None:
                result: Any = None
                failure: BaseException | None = None
                try:
                    result = function()
                except Exception as error:  # noqa: BLE001 - handed to whoever waits
                    failure = error
                with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits
                    loop.call_soon_threadsafe(settle, result, failure)

            try:
                threading.Thread(target=work, name=self._name, daemon=True).start()
            except RuntimeError as error:
                self._places.release()
                raise QueueFull("the system starts no more threads; try again later") from error
            return await future
