"""Blocking work kept off the event loop, so that one caller's heavy request does not stop the others."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from tenuto.errors import InvalidRequest, QueueFull

T = TypeVar("T")

Job: TypeAlias = Callable[[], Callable[[], None]]
"""Does the work; what it returns tells of the result."""


class _Threads:
    """Threads that do one job after the other, and end when there has been none for a while: to start one costs more
    than most jobs do. They are daemons, and know nothing of whoever gives them work."""

    _IDLE_S = 10.0

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._num_idle = 0  # threads that wait for a job, less the jobs on their way

    def do(self, job: Job) -> None:
        """Raises RuntimeError if the system is out of threads."""
        with self._lock:
            is_awaited = self._num_idle > 0
            self._num_idle -= is_awaited
        if is_awaited:
            self._jobs.put(job)
        else:
            threading.Thread(target=self._work, args=(job,), name=self._name, daemon=True).start()

    def _work(self, job: Job) -> None:
        while True:
            tell = job()
            with self._lock:
                self._num_idle += 1
            tell()  # whoever is told may have the next job at once: it finds this thread
            del job, tell  # what they hold is free while the thread waits
            try:
                job = self._jobs.get(timeout=self._IDLE_S)
            except queue.Empty:
                with self._lock:
                    is_awaited = self._num_idle == 0  # somebody counts on a thread that waits
                    self._num_idle -= not is_awaited
                if not is_awaited:
                    return
                job = self._jobs.get()


class Offload:
    """Runs functions in threads, at most `max_threads` at once; others wait for a free one.

    The threads are daemons: Python cannot stop one, and a function that never ends must not keep the process alive.
    For the same reason such a function holds its place until it ends, whoever waits for it.
    """

    def __init__(self, name: str, max_threads: int) -> None:
        self._threads = _Threads(name)
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

            def work() -> Callable[[], None]:
                result: Any = None
                failure: BaseException | None = None
                try:
                    result = function()
                except Exception as error:  # noqa: BLE001 - handed to whoever waits
                    failure = error

                def tell() -> None:
                    with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits
                        loop.call_soon_threadsafe(settle, result, failure)

                return tell

            try:
                self._threads.do(work)
            except RuntimeError as error:
                self._places.release()
                raise QueueFull("the system starts no more threads; try again later") from error
            return await future


class Preparation:
    """Work that may be heavy, because of what a request holds: beside the event loop, and within a time.

    Args:
        max_threads: 0: on the event loop, for simulations and tests.
    """

    def __init__(self, name: str, max_threads: int, timeout_s: float) -> None:
        self._offload = Offload(name, max_threads) if max_threads else None
        self._timeout_s = timeout_s

    async def run(self, work: Callable[[], T], too_slow: str, param: str | None = None) -> T:
        """What the work gives.

        Args:
            too_slow: said where it takes too long, with `{limit}` for the time.
            param: the field of the request that is to blame.

        Raises what it raises, InvalidRequest if it takes too long, and QueueFull as `Offload.run`.
        """
        if self._offload is None:
            return work()
        try:
            return await self._offload.run(work, self._timeout_s)
        except TimeoutError as error:
            raise InvalidRequest(too_slow.format(limit=f"{self._timeout_s:g} s"), param) from error
