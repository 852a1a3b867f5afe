"""Threads for sync tools, kept away from the event loop and bounded whatever the tools do.

A Python thread cannot be stopped. A call that outlives its deadline is therefore dropped: its place goes to the next
call, its thread is counted as stuck, and what it returns in the end is logged and thrown away. A tool with too many
stuck threads is refused at once, so that it cannot use up the threads of the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tenuto.errors import ToolError

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Job:
    name: str
    function: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    started: bool = False
    finished: bool = False
    dropped: bool = False


class WorkerThreads:
    """Runs functions in daemon threads, at most `max_running` at once; more wait in order of arrival.

    Args:
        max_running: threads of calls somebody still waits for.
        max_stuck: threads that run on after their call was dropped, over all tools.
        max_stuck_per_tool: the same for one tool.
    """

    def __init__(self, max_running: int = 16, max_stuck: int = 64, max_stuck_per_tool: int = 4) -> None:
        self._max_running = max_running
        self._max_stuck = max_stuck
        self._max_stuck_per_tool = max_stuck_per_tool
        self._lock = threading.Lock()
        self._waiting: deque[_Job] = deque()
        self._num_running = 0
        self._stuck: Counter[str] = Counter()

    @property
    def num_stuck(self) -> int:
        return self._stuck.total()

    async def run(self, name: str, function: Callable[[], Any]) -> Any:
        """The function's result. Cancelling drops the call; the caller sets the deadline by cancelling.

        Raises ToolError if too many earlier calls are stuck.
        """
        loop = asyncio.get_running_loop()
        job = _Job(name, function, loop, loop.create_future())
        with self._lock:
            self._refuse_if_stuck(name)
            self._waiting.append(job)
            self._start_waiting()
        try:
            return await job.future
        finally:
            self._drop(job)

    def _refuse_if_stuck(self, name: str) -> None:
        if self._stuck[name] >= self._max_stuck_per_tool:
            raise ToolError(f"{self._stuck[name]} earlier calls of {name} still run past their deadline; try later")
        if self._stuck.total() >= self._max_stuck:
            raise ToolError(f"{self._stuck.total()} tool calls still run past their deadline; no thread is free")

    def _start_waiting(self) -> None:
        while self._waiting and self._num_running < self._max_running:
            job = self._waiting.popleft()
            try:
                threading.Thread(target=self._work, args=(job,), name=f"tool-{job.name}", daemon=True).start()
            except RuntimeError:
                job.finished = True
                refusal = ToolError("the system starts no more threads; the tool was not called")
                with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits
                    job.loop.call_soon_threadsafe(_settle, job.future, None, refusal)
                continue
            job.started = True
            self._num_running += 1

    def _drop(self, job: _Job) -> None:
        with self._lock:
            if job.finished:
                return
            job.dropped = True
            if job.started:
                self._num_running -= 1
                self._stuck[job.name] += 1
                self._start_waiting()
            else:
                self._waiting.remove(job)

    def _work(self, job: _Job) -> None:
        result: Any = None
        failure: BaseException | None = None
        try:
            result = job.context.run(job.function)
        except BaseException as error:  # noqa: BLE001  a tool must not end our thread unseen: it is handed over
            failure = error
        with self._lock:
            job.finished = True
            if job.dropped:
                self._stuck[job.name] -= 1
            else:
                self._num_running -= 1
            self._start_waiting()
        if job.dropped:
            how = "a result" if failure is None else type(failure).__name__
            _log.warning("tool %s ended with %s after its call was given up; it is dropped", job.name, how)
            return
        try:
            job.loop.call_soon_threadsafe(_settle, job.future, result, failure)
        except RuntimeError:
            _log.warning("tool %s ended after its event loop was closed; its result is dropped", job.name)


def _settle(future: asyncio.Future[Any], result: Any, failure: BaseException | None) -> None:
    if future.done():
        return
    if failure is None:
        future.set_result(result)
    elif isinstance(failure, Exception) and not isinstance(failure, StopIteration):
        future.set_exception(failure)
    else:  # SystemExit and its like must not pass through a future into the loop
        future.set_exception(ToolError(f"{type(failure).__name__}: {failure}"))
