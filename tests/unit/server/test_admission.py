"""How much work is let in, what the refused are told, and when a drain is over."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from tenuto.clock import VirtualClock, run_virtual
from tenuto.errors import EngineClosed, QueueFull
from tenuto.server.admission import Admission


def test_places_are_counted_in_all_and_by_tenant():
    async def main() -> None:
        admission = Admission(VirtualClock(), max_requests=3, max_tenant_requests=2)
        with ExitStack() as places:
            for tenant in ("a", "a", "b"):
                admission.check(tenant)
                places.enter_context(admission.working(tenant))
            with pytest.raises(QueueFull, match="3 requests"):
                admission.check("c")
        assert admission.num_working == 0
        with admission.working("a"), admission.working("a"):
            with pytest.raises(QueueFull, match="of yours"):
                admission.check("a")
            admission.check("b")
        admission.check("a")

    run_virtual(main())


def test_a_place_is_given_back_by_an_error_too():
    async def main() -> None:
        admission = Admission(VirtualClock(), max_requests=1, max_tenant_requests=1)
        for error in (ValueError("x"), asyncio.CancelledError()):
            with pytest.raises(type(error)), admission.working("a"):
                raise error
            admission.check("a")

    run_virtual(main())


def test_the_refused_are_told_when_their_turn_comes():
    """4 requests of 10 s each leave one every 2.5 s: each refused client gets the next of these moments."""

    async def main() -> None:
        clock = VirtualClock()
        admission = Admission(clock, max_requests=4, max_tenant_requests=4)
        for _ in range(100):  # so that the mean has settled
            with admission.working("a"):
                await clock.sleep(10)
        with ExitStack() as places:
            for _ in range(4):
                places.enter_context(admission.working("a"))
            told = [admission.retry_after_s() for _ in range(4)]
            assert told == [3, 5, 8, 10]
            assert [admission.retry_after_s() for _ in range(100)][-1] == 60
            await clock.sleep(100)
            assert admission.retry_after_s() == 3

    run_virtual(main())


def test_quick_requests_are_told_to_come_back_in_a_second():
    async def main() -> None:
        clock = VirtualClock()
        admission = Admission(clock, max_requests=2, max_tenant_requests=2)
        for _ in range(100):
            with admission.working("a"):
                await clock.sleep(0.01)
        with admission.working("a"), admission.working("a"):
            assert admission.retry_after_s() == 1

    run_virtual(main())


def test_a_drain_lets_nothing_in_and_ends_with_the_last_request():
    async def main() -> None:
        clock = VirtualClock()
        admission = Admission(clock, max_requests=9, max_tenant_requests=9)
        await admission.idle()

        async def work(seconds: float) -> None:
            with admission.working("a"):
                await clock.sleep(seconds)

        async def read(seconds: float) -> None:
            with admission.opened():
                await clock.sleep(seconds)

        tasks = [asyncio.create_task(work(3)), asyncio.create_task(read(5))]
        await asyncio.sleep(0)
        admission.begin_drain()
        assert admission.is_draining
        with pytest.raises(EngineClosed):
            admission.check("a")
        await admission.idle()
        assert clock.now() == 5 and all(task.done() for task in tasks)

    run_virtual(main())
