"""The queue before an encoder: batches, turns, bounds, failures and cancelling."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import numpy as np
import pytest

from tenuto.embedding import QueuedText, QueueLimits, TextQueue
from tenuto.errors import EngineClosed, QueueFull, StepFailed
from tenuto.ids import TokenId
from tenuto.text.frame import FramedText


def texts(*lengths: int, token: int = 1) -> list[QueuedText]:
    return [QueuedText(FramedText((TokenId(token),) * n, (0,) * n), "mean") for n in lengths]


class Model:
    """A row is (token, number of tokens); remembers its batches, and can wait at a gate or fail."""

    def __init__(self) -> None:
        self.batches: list[list[tuple[int, int]]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.error: Exception | None = None
        self.threads: set[str] = set()

    def __call__(self, batch: Sequence[QueuedText]) -> np.ndarray:
        self.threads.add(threading.current_thread().name)
        self.batches.append([(one.text.ids[0], one.num_tokens) for one in batch])
        self.entered.set()
        assert self.gate.wait(10)
        if self.error is not None:
            raise self.error
        return np.array([[one.text.ids[0], one.num_tokens] for one in batch], dtype=np.float32)


async def blocked(model: Model, queue: TextQueue) -> asyncio.Task[np.ndarray]:
    """A first request that holds the thread until the gate opens."""
    model.gate.clear()
    task = asyncio.create_task(queue.run(texts(1, token=99)))
    await asyncio.to_thread(model.entered.wait, 10)
    return task


def test_rows_come_back_in_order() -> None:
    async def main() -> None:
        model = Model()
        async with TextQueue(model) as queue:
            rows = await queue.run(texts(3, 1, 2, token=7))
        assert rows.tolist() == [[7, 3], [7, 1], [7, 2]]
        assert len(model.batches) == 1
        assert threading.current_thread().name not in model.threads, "computed on the event loop"

    asyncio.run(main())


def test_batches_keep_the_budget_and_take_every_request_in_turn() -> None:
    async def main() -> None:
        model = Model()
        async with TextQueue(model, QueueLimits(max_batch_tokens=10)) as queue:
            first = await blocked(model, queue)
            long = asyncio.create_task(queue.run(texts(4, 4, 4, 4, token=1)))
            short = asyncio.create_task(queue.run(texts(4, token=2)))
            huge = asyncio.create_task(queue.run(texts(30, token=3)))
            await asyncio.sleep(0)
            model.gate.set()
            results = await asyncio.gather(first, long, short, huge)
        assert [len(rows) for rows in results] == [1, 4, 1, 1]
        # The short one does not wait for the long one's end; a text longer than the budget goes alone.
        assert model.batches[1:] == [[(1, 4), (2, 4)], [(3, 30)], [(1, 4), (1, 4)], [(1, 4)]]

    asyncio.run(main())


def test_too_many_waiting_texts_are_refused_whole() -> None:
    async def main() -> None:
        model = Model()
        async with TextQueue(model, QueueLimits(max_waiting=3)) as queue:
            first = await blocked(model, queue)
            second = asyncio.create_task(queue.run(texts(1, 1)))
            await asyncio.sleep(0)
            with pytest.raises(QueueFull, match="2 texts are waiting"):
                await queue.run(texts(1, 1))
            third = asyncio.create_task(queue.run(texts(1)))
            model.gate.set()
            await asyncio.gather(first, second, third)
            await queue.run(texts(1, 1, 1))  # there is room again

    asyncio.run(main())


def test_a_cancelled_request_gives_up_its_place() -> None:
    async def main() -> None:
        model = Model()
        async with TextQueue(model, QueueLimits(max_waiting=4)) as queue:
            first = await blocked(model, queue)
            second = asyncio.create_task(queue.run(texts(1, 1, 1, token=5)))
            await asyncio.sleep(0)
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            third = asyncio.create_task(queue.run(texts(1, 1, 1, 1, token=6)))
            await asyncio.sleep(0)
            first.cancel()  # in flight: its batch is computed, and its rows go nowhere
            model.gate.set()
            assert len(await third) == 4
        assert all(token != 5 for batch in model.batches for token, _ in batch)

    asyncio.run(main())


def test_a_failed_batch_fails_its_requests_and_no_others() -> None:
    async def main() -> None:
        model = Model()
        async with TextQueue(model) as queue:
            model.error = MemoryError("no memory left")
            with pytest.raises(StepFailed, match="no memory left") as caught:
                await queue.run(texts(1, 1))
            assert isinstance(caught.value.__cause__, MemoryError)
            model.error = None
            assert len(await queue.run(texts(2))) == 1

    asyncio.run(main())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_none_fail_their_request_alone(value: float) -> None:
    async def main() -> None:
        model = Model()

        def compute(batch: Sequence[QueuedText]) -> np.ndarray:
            rows = model(batch)
            rows[rows[:, 0] == 5, 1] = value
            return rows

        async with TextQueue(compute) as queue:
            first = await blocked(model, queue)
            broken, sound = (asyncio.create_task(queue.run(texts(2, token=token))) for token in (5, 6))
            await asyncio.sleep(0)
            model.gate.set()
            await first
            with pytest.raises(StepFailed, match="no finite numbers"):
                await broken
            assert (await sound).tolist() == [[6, 2]]
        assert [(5, 2), (6, 2)] in model.batches

    asyncio.run(main())


def test_stopping_ends_what_waits() -> None:
    async def main() -> None:
        model = Model()
        queue = TextQueue(model)
        with pytest.raises(EngineClosed, match="not been started"):
            await queue.run(texts(1))
        async with queue:
            first = await blocked(model, queue)
            second = asyncio.create_task(queue.run(texts(1)))
            await asyncio.sleep(0)
            asyncio.get_running_loop().call_later(0.05, model.gate.set)
        for task in (first, second):
            with pytest.raises(EngineClosed, match="stopped"):
                await task
        with pytest.raises(EngineClosed):
            await queue.run(texts(1))

    asyncio.run(main())
