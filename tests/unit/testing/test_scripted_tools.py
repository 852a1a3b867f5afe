from __future__ import annotations

import asyncio

import pytest

from tenuto.clock import VirtualClock, run_virtual
from tenuto.testing.scripted_tools import ScriptedTools


def test_plays_results_in_order_repeats_the_last_and_raises_exceptions():
    async def main() -> None:
        tools = ScriptedTools()
        search = tools.make("search", ["一", ValueError("坏"), "三"])
        assert await search(query="a") == "一"
        with pytest.raises(ValueError, match="坏"):
            await search(query="b")
        assert [await search(query="c"), await search(query="d")] == ["三", "三"]
        assert tools.calls == [("search", {"query": q}) for q in "abcd"]

    asyncio.run(main())


def test_takes_time_on_the_clock_and_records_cancellation():
    async def main() -> None:
        clock = VirtualClock()
        tools = ScriptedTools(clock)
        slow = tools.make("slow", lambda a: a["n"] * 2, parameters={"n": int}, delay_s=lambda a: float(a["n"]))
        assert slow.parameters["properties"]["n"]["type"] == "integer"
        first, second = asyncio.create_task(slow(n=10)), asyncio.create_task(slow(n=1000))
        assert await first == 20
        assert clock.now() == 10
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        assert tools.cancelled == [("slow", {"n": 1000})]
        assert tools.max_running == 2

    run_virtual(main())
