"""A mailbox gives what was put in, in order, and loses nothing when its reader gives up."""

from __future__ import annotations

import asyncio

import pytest

from tenuto.engine.mailbox import Mailbox


def test_in_order_whether_the_reader_waits_or_comes_later():
    async def main() -> list[str]:
        box: Mailbox[str] = Mailbox()
        box.put("甲")
        box.put("乙")
        assert len(box) == 2
        taken = [await box.take(), await box.take()]
        waiting = asyncio.create_task(box.take())
        await asyncio.sleep(0)
        for item in "丙丁":
            box.put(item)
        return [*taken, await waiting, await box.take()]

    assert asyncio.run(main()) == ["甲", "乙", "丙", "丁"]


@pytest.mark.parametrize("put_first", [True, False])
def test_a_reader_that_gives_up_takes_nothing_with_it(put_first: bool):
    async def main() -> None:
        box: Mailbox[int] = Mailbox()
        reading = asyncio.create_task(box.take())
        await asyncio.sleep(0)
        if put_first:  # the reader is awake, but has not run yet
            box.put(1)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        if not put_first:
            box.put(1)
        assert await box.take() == 1

    asyncio.run(main())


def test_a_second_reader_is_a_mistake():
    async def main() -> None:
        box: Mailbox[int] = Mailbox()
        reading = asyncio.create_task(box.take())
        await asyncio.sleep(0)
        with pytest.raises(AssertionError):
            await box.take()
        box.put(1)
        assert await reading == 1

    asyncio.run(main())
