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
