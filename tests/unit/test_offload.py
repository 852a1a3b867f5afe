"""Blocking work beside the event loop."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from tenuto.errors import QueueFull
from tenuto.offload import Offload


def test_results_and_errors_come_back_from_another_thread() -> None:
    async def main() -> None:
        offload = Offload("aside", 1)
        assert await offload.run(lambda: threading.current_thread().name, 10) == "aside"
        with pytest.raises(ZeroDivisionError):
            await offload.run(lambda: 1 // 0, 10)

    asyncio.run(main())


def test_the_loop_goes_on_and_places_are_bounded() -> None:
    async def main() -> None:
        offload = Offload("aside", 1)
        gate = threading.Event()
        blocked = asyncio.create_task(offload.run(lambda: gate.wait(10), 10))
        await asyncio.sleep(0)  # it has the only place
        with pytest.raises(TimeoutError):
            await offload.run(lambda: None, 0.01)
        gate.set()
        assert await blocked
        assert await offload.run(lambda: "好", 10) == "好"

    asyncio.run(main())


def test_threads_are_used_again_and_end_when_there_is_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenuto.offload._Threads._IDLE_S", 0.2)

    async def main() -> None:
        offload = Offload("aside-again", 2)
        first = await offload.run(threading.get_ident, 10)
        for _ in range(20):
            assert await offload.run(threading.get_ident, 10) == first
        both = await asyncio.gather(*(offload.run(lambda: (gate.wait(10), threading.get_ident())[1], 10) for _ in "ab"))
        assert len(set(both)) == 2

    gate = threading.Barrier(2)  # passed only by two at once
    asyncio.run(main())
    for thread in [thread for thread in threading.enumerate() if thread.name == "aside-again"]:
        thread.join(10)
        assert not thread.is_alive()


def test_no_job_is_lost_between_threads_that_end_and_jobs_that_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenuto.offload._Threads._IDLE_S", 0.0005)

    async def main() -> None:
        offload = Offload("aside", 3)

        async def one(number: int) -> None:
            for step in range(150):
                assert await offload.run(lambda: number, 10) == number
                await asyncio.sleep(0.0004 * (step % 3))

        await asyncio.gather(*(one(number) for number in range(3)))

    asyncio.run(main())


def test_who_gives_up_leaves_the_place_taken_until_the_function_ends() -> None:
    async def main() -> None:
        offload = Offload("aside", 1)
        gate = threading.Event()
        with pytest.raises(TimeoutError):
            await offload.run(lambda: gate.wait(10), 0.01)
        with pytest.raises(TimeoutError):
            await offload.run(lambda: None, 0.01)
        gate.set()
        assert await offload.run(lambda: 1, 10) == 1

    asyncio.run(main())


def test_a_function_that_never_ends_does_not_keep_the_process() -> None:
    program = """
import asyncio, threading
from tenuto.offload import Offload
async def main():
    try:
        await Offload("aside", 1).run(threading.Event().wait, 0.01)
    except TimeoutError:
        print("given up")
asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "given up\n"


def test_a_system_out_of_threads_is_told_and_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        offload = Offload("aside", 1)

        def refuse(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as without, pytest.raises(QueueFull, match="no more threads"):
            without.setattr(threading.Thread, "start", refuse)
            await offload.run(lambda: None, 10)
        assert await offload.run(lambda: 1, 10) == 1

    asyncio.run(main())
