"""Texts of many requests, computed together: batches under a token budget, every request in turn."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tenuto.errors import EngineClosed, QueueFull, StepFailed, TenutoError
from tenuto.protocol.engine import Pooling
from tenuto.text.frame import FramedText

Vectors: TypeAlias = NDArray[np.float32]


class QueuedText(NamedTuple):
    text: FramedText
    pooling: Pooling

    @property
    def num_tokens(self) -> int:
        return len(self.text.ids)


Compute: TypeAlias = Callable[[Sequence[QueuedText]], Vectors]
"""One row a text: float32 [texts, n]. Runs in a thread of the queue's own, one call at a time."""


@dataclass(frozen=True, kw_only=True)
class QueueLimits:
    max_batch_tokens: int = 4096  # tokens computed together; a longer text is computed alone
    max_waiting: int = 8192  # texts waiting; more are refused with QueueFull
    stop_timeout_s: float = 30.0  # how long `stop` waits for the batch in flight


@dataclass(eq=False)
class _Request:
    texts: Sequence[QueuedText]
    future: asyncio.Future[Vectors]
    next: int = 0  # the text to compute next
    rows: dict[int, NDArray[np.float32]] = field(default_factory=dict)


class TextQueue:
    """An async context manager; `run` is answered between start and stop. Belongs to one event loop.

    Batches are filled with one text of each waiting request in turn, so that a long request delays a short one by a
    batch or so and not by its whole length.
    """

    def __init__(self, compute: Compute, limits: QueueLimits = QueueLimits()) -> None:
        self._compute = compute
        self._limits = limits
        self._requests: deque[_Request] = deque()  # those with texts that were not begun
        self._in_flight: list[tuple[_Request, int]] = []
        self._num_waiting = 0
        self._wake = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._closed: EngineClosed | None = EngineClosed("the model has not been started")

    async def __aenter__(self) -> TextQueue:
        assert self._loop is None, "the queue is started already"
        self._thread = ThreadPoolExecutor(1, "tenuto-encode")
        self._closed = None
        self._loop = asyncio.create_task(self._run(), name="tenuto-encode-loop")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """End all requests with EngineClosed, and wait for the batch in flight, up to the deadline."""
        if self._loop is None or self._thread is None:
            return
        self._close(EngineClosed("the model was stopped"))
        loop, self._loop = self._loop, None
        self._wake.set()
        done, _ = await asyncio.wait([loop], timeout=self._limits.stop_timeout_s)
        if not done:
            loop.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)
        if done and not loop.cancelled():
            loop.result()

    async def run(self, texts: Sequence[QueuedText]) -> Vectors:
        """The rows of all texts, in their order. Cancelling gives up those that were not begun.

        Raises:
            QueueFull: too many texts are waiting.
            StepFailed: a batch with one of the texts failed, or gave numbers that are none.
            EngineClosed: the queue has stopped.
        """
        assert texts, "nothing to compute"
        if self._closed is not None:
            raise EngineClosed(*self._closed.args) from self._closed
        if self._num_waiting + len(texts) > self._limits.max_waiting:
            raise QueueFull(f"{self._num_waiting} texts are waiting already; try again later")
        request = _Request(texts, asyncio.get_running_loop().create_future())
        self._requests.append(request)
        self._num_waiting += len(texts)
        self._wake.set()
        try:
            return await request.future
        finally:
            self._forget(request)

    def _forget(self, request: _Request) -> None:
        """What was not begun is given up; nothing, where everything was."""
        self._num_waiting -= len(request.texts) - request.next
        request.next = len(request.texts)
        if request in self._requests:
            self._requests.remove(request)

    def _next_batch(self) -> list[tuple[_Request, int]]:
        batch: list[tuple[_Request, int]] = []
        budget = self._limits.max_batch_tokens
        while self._requests:
            request = self._requests[0]
            num_tokens = request.texts[request.next].num_tokens
            if batch and num_tokens > budget:
                break
            budget -= num_tokens
            batch.append((request, request.next))
            request.next += 1
            self._num_waiting -= 1
            self._requests.popleft()
            if request.next < len(request.texts):
                self._requests.append(request)
        return batch

    async def _run(self) -> None:
        try:
            while self._closed is None:
                self._in_flight = self._next_batch()
                if self._in_flight:
                    await self._step(self._in_flight)
                else:
                    self._wake.clear()
                    await self._wake.wait()
        except BaseException as error:
            # A bug, or this task was cancelled: nobody may be left waiting for a loop that is gone.
            closed = EngineClosed("the model stopped because of an internal error")
            closed.__cause__ = error
            self._close(closed)
            raise

    async def _step(self, batch: list[tuple[_Request, int]]) -> None:
        texts = [request.texts[index] for request, index in batch]
        try:
            rows = await asyncio.get_running_loop().run_in_executor(self._thread, self._compute, texts)
        except Exception as error:  # noqa: BLE001 - whatever a device raises becomes the typed error of these requests
            failed = error if isinstance(error, TenutoError) else StepFailed(f"computing a batch failed: {error}")
            if failed is not error:
                failed.__cause__ = error
            for request, _ in batch:
                self._fail(request, failed)
            return
        assert len(rows) == len(batch), "one row a text"
        finite = [bool(np.isfinite(row).all()) for row in rows]
        for (request, index), row, is_finite in zip(batch, rows, finite, strict=True):
            if not is_finite:
                self._fail(request, StepFailed("the model computed no finite numbers for this request"))
            elif not request.future.done():
                request.rows[index] = row
                if len(request.rows) == len(request.texts):
                    request.future.set_result(np.stack([request.rows[at] for at in range(len(request.texts))]))

    def _fail(self, request: _Request, error: TenutoError) -> None:
        self._forget(request)
        if not request.future.done():
            request.future.set_exception(error)

    def _close(self, reason: EngineClosed) -> None:
        if self._closed is None:
            self._closed = reason
            for request in [*self._requests, *(request for request, _ in self._in_flight)]:
                self._fail(request, reason)
