"""Whatever a tool does, its call has an outcome in bounded time and the loop stays free (cases B50, B51, B54, B61)."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from datetime import UTC, datetime
from typing import Any

import msgspec
import pydantic
import pytest

from tenuto.clock import RealClock, VirtualClock, run_virtual
from tenuto.errors import ToolError
from tenuto.ids import CallId
from tenuto.protocol.messages import ToolCall
from tenuto.tools import Tool, ToolOutcome, ToolRegistry, ToolRuntime, WorkerThreads, tool


def call_of(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(id=CallId("c"), name=name, arguments=arguments)


def returning(value: Any) -> Tool:
    @tool(name="give")
    async def give() -> Any:
        """Give."""
        if isinstance(value, BaseException):
            raise value
        return value

    return give


def outcome_of(tools: list[Tool], call: ToolCall, **settings: Any) -> ToolOutcome:
    return asyncio.run(ToolRuntime(ToolRegistry(tools), RealClock(), **settings).run(call))


class Struct(msgspec.Struct):
    name: str


class Model(pydantic.BaseModel):
    when: datetime


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("今天晴\n", "今天晴\n"),
        ({"城市": "北京", "t": [1, 2.5, None, True]}, '{"城市": "北京", "t": [1, 2.5, null, true]}'),
        (3, "3"),
        (math.nan, '"NaN"'),
        ({"x": math.inf}, '{"x": "Infinity"}'),
        (None, "(the tool returned nothing)"),
        ("", "(the tool returned nothing)"),
        ("北京".encode(), "北京"),
        (b"\xff\xfe\x00", "(3 bytes of binary data)"),
        ({"raw": b"abc"}, '{"raw": "abc"}'),
        ({"raw": b"\xff"}, '{"raw": "_w=="}'),
        (Struct("甲"), '{"name": "甲"}'),
        (Model(when=datetime(2026, 1, 5, tzinfo=UTC)), '{"when": "2026-01-05T00:00:00Z"}'),
        ({1: "a", (1, 2): "b"}, '{"1": "a", "1,2": "b"}'),
        (object(), '"<object object'),
        ("坏\ud800", "坏?"),
        ("half \ud83d", "half ?"),
        ({"lc": 1, "type": "constructor"}, '{"lc": 1, "type": "constructor"}'),
    ],
)
def test_any_result_becomes_text(value, text):
    outcome = outcome_of([returning(value)], call_of("give"))
    assert not outcome.is_error
    assert outcome.text.startswith(text)
    outcome.text.encode()


LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize("value", [LOOP, {"x": "half \ud800"}], ids=["contains itself", "half a surrogate pair"])
def test_a_result_that_cannot_be_written_is_an_error(value):
    outcome = outcome_of([returning(value)], call_of("give"))
    assert (outcome.is_error, outcome.error_code) == (True, "tool_error")
    assert "cannot be written as JSON" in outcome.text


def test_a_long_result_is_cut_with_a_notice():
    outcome = outcome_of([returning("长" * 200_000)], call_of("give"), max_result_chars=1000)
    assert outcome.text == "长" * 1000 + "\n[cut: the result has 200000 characters, only the first 1000 are shown]"
    assert outcome_of([returning("长" * 1000)], call_of("give"), max_result_chars=1000).text == "长" * 1000


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ValueError("没有这个城市"), "tool_failed", "Error: ValueError: 没有这个城市"),
        (RuntimeError(), "tool_failed", "Error: RuntimeError: no message was given"),
        (KeyError("k"), "tool_failed", "Error: KeyError: 'k'"),
        (SystemExit(3), "tool_error", "Error: ToolError: the tool tried to end the program (exit code 3)"),
        (asyncio.CancelledError(), "tool_error", "Error: ToolError: give cancelled itself"),
        (TimeoutError(), "tool_failed", "Error: TimeoutError: no message was given"),
        (ValueError("x" * 5000), "tool_failed", "Error: ValueError: " + "x" * 500 + "..."),
    ],
)
def test_an_exception_becomes_class_and_short_message(error, code, text):
    outcome = outcome_of([returning(error)], call_of("give"))
    assert (outcome.is_error, outcome.error_code, outcome.text) == (True, code, text)


@pytest.mark.parametrize(
    "message",
    [
        "GET https://user:CANARY@host/x failed",
        "status 403 for https://host/x?api_key=CANARY&city=y",
        "Authorization: Bearer CANARY",
        '{"token": "CANARY"}',
        "password=CANARY",
        "bad key sk-CANARYCANARY",
    ],
)
def test_secrets_in_exceptions_are_masked(message):
    outcome = outcome_of([returning(RuntimeError(message))], call_of("give"))
    assert "CANARY" not in outcome.text
    assert "***" in outcome.text


def test_sync_tools_run_side_by_side_off_the_loop():
    """Three tools meet at a barrier, which they could not if one ran after the other; the loop ticks meanwhile."""
    barrier = threading.Barrier(3)
    release = threading.Event()
    main_thread = threading.get_ident()

    @tool
    def meet() -> bool:
        """Meet."""
        barrier.wait(30)
        release.wait(30)
        return threading.get_ident() == main_thread

    async def main() -> list[ToolOutcome]:
        runtime = ToolRuntime(ToolRegistry([meet]), RealClock())
        tasks = [asyncio.create_task(runtime.run(call_of("meet"))) for _ in range(3)]
        for _ in range(100):
            await asyncio.sleep(0)
        release.set()
        return await asyncio.gather(*tasks)

    assert [outcome.text for outcome in asyncio.run(main())] == ["false"] * 3


def test_a_stuck_sync_tool_times_out_and_does_not_use_up_the_threads(caplog):
    release = threading.Event()

    @tool(deadline_s=0.05)
    def stuck() -> str:
        """Stuck."""
        release.wait(60)
        return "too late"

    @tool(deadline_s=30.0)
    def quick() -> str:
        """Quick."""
        return "快"

    async def main() -> None:
        threads = WorkerThreads(max_running=2, max_stuck_per_tool=4)
        runtime = ToolRuntime(ToolRegistry([stuck, quick]), RealClock(), threads=threads)
        outcomes = [await runtime.run(call_of("stuck")) for _ in range(50)]
        assert [o.error_code for o in outcomes[:4]] == ["tool_timeout"] * 4
        assert "did not answer within 0.05 s; whether it took effect is unknown" in outcomes[0].text
        assert {o.error_code for o in outcomes[4:]} == {"tool_error"}
        assert "4 earlier calls of stuck still run" in outcomes[-1].text
        assert (await runtime.run(call_of("quick"))).text == "快"
        release.set()
        while threads.num_stuck:  # noqa: ASYNC110  threads set no event
            await asyncio.sleep(0.01)
        again = [await runtime.run(call_of("stuck")) for _ in range(20)]
        assert "too late" in [o.text for o in again]  # it answers now, and may be called again

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert sum("it is dropped" in record.message for record in caplog.records) >= 4


def test_a_call_that_finds_no_thread_waits_no_longer_than_its_deadline():
    release = threading.Event()
    ran: list[int] = []

    @tool(deadline_s=30.0)
    def hold() -> str:
        """Hold."""
        release.wait(60)
        return "held"

    @tool(deadline_s=0.5)
    def brief(n: int) -> None:
        """Brief."""
        ran.append(n)

    async def main() -> None:
        runtime = ToolRuntime(ToolRegistry([hold, brief]), RealClock(), threads=WorkerThreads(max_running=1))
        holding = asyncio.create_task(runtime.run(call_of("hold")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (await runtime.run(call_of("brief", n=1))).error_code == "tool_timeout"
        release.set()
        assert (await holding).text == "held"
        assert not (await runtime.run(call_of("brief", n=2))).is_error
        assert ran == [2]  # the call that was given up before it started never starts

    asyncio.run(main())


def test_too_many_stuck_threads_over_all_tools_are_refused():
    release = threading.Event()

    def stuck_tool(name: str) -> Tool:
        @tool(name=name, deadline_s=0.02)
        def stuck() -> None:
            """Stuck."""
            release.wait(60)

        return stuck

    async def main() -> None:
        tools = [stuck_tool(f"s{n}") for n in range(4)]
        runtime = ToolRuntime(ToolRegistry(tools), RealClock(), threads=WorkerThreads(max_stuck=3))
        outcomes = [await runtime.run(call_of(f"s{n}")) for n in range(4)]
        assert [o.error_code for o in outcomes] == ["tool_timeout"] * 3 + ["tool_error"]
        assert "no thread is free" in outcomes[3].text
        release.set()

    asyncio.run(main())


def test_an_async_tool_is_cancelled_at_its_deadline_and_one_that_refuses_is_left_behind():
    async def main() -> None:
        clock = VirtualClock()
        seen: list[str] = []

        @tool(deadline_s=5.0)
        async def polite() -> None:
            """Polite."""
            try:
                await clock.sleep(1000)
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

        @tool(deadline_s=5.0)
        async def rude() -> str:
            """Rude."""
            for _ in range(3):
                try:
                    await clock.sleep(1000)
                except asyncio.CancelledError:
                    seen.append("ignored")
            return "late"

        runtime = ToolRuntime(ToolRegistry([polite, rude]), clock)
        outcome = await runtime.run(call_of("polite"))
        assert (outcome.error_code, outcome.duration_s, seen) == ("tool_timeout", 5.0, ["cancelled"])
        outcome = await runtime.run(call_of("rude"))
        assert (outcome.error_code, outcome.duration_s) == ("tool_timeout", 6.0)
        assert seen == ["cancelled", "ignored"]

    run_virtual(main())


def test_the_callers_wait_shortens_a_deadline_and_its_cancellation_reaches_the_tool():
    async def main() -> None:
        clock = VirtualClock()
        ended: list[float] = []

        @tool(deadline_s=100.0)
        async def slow() -> None:
            """Slow."""
            try:
                await clock.sleep(1000)
            finally:
                ended.append(clock.now())

        runtime = ToolRuntime(ToolRegistry([slow]), clock)
        assert (await runtime.run(call_of("slow"), max_wait_s=2.0)).error_code == "tool_timeout"
        task = asyncio.create_task(runtime.run(call_of("slow")))
        await clock.sleep(1.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == [2.0, 3.0]

    run_virtual(main())


def test_threads_serve_one_event_loop_after_another():
    threads = WorkerThreads(max_running=1)

    @tool
    def one() -> int:
        """One."""
        return 1

    async def main() -> list[str]:
        runtime = ToolRuntime(ToolRegistry([one]), RealClock(), threads=threads)
        return [o.text for o in await asyncio.gather(*(runtime.run(call_of("one")) for _ in range(5)))]

    assert asyncio.run(main()) == asyncio.run(main()) == ["1"] * 5


def test_exiting_from_a_thread_is_an_error_result():
    @tool
    def leave() -> None:
        """Leave."""
        raise SystemExit(1)

    outcome = outcome_of([leave], call_of("leave"))
    assert outcome.error_code == "tool_error" and "SystemExit" in outcome.text


def test_a_system_out_of_threads_fails_the_call_and_takes_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        threads = WorkerThreads(max_running=1)

        def refuse(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as without, pytest.raises(ToolError, match="no more threads"):
            without.setattr(threading.Thread, "start", refuse)
            await threads.run("slow", lambda: None)
        assert await threads.run("slow", lambda: 1) == 1

    asyncio.run(main())
