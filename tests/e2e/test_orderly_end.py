"""SIGTERM under load, by real processes: accepted requests finish within the deadline, or are told that they do not."""

from __future__ import annotations

import asyncio
import signal
import time

import httpx
import pytest
from serving_process import SCRIPTED, STOP_DEADLINE_S, Served, Streamed, served, stream

SMALL: dict[str, object] = {"model": "m", "messages": [{"role": "user", "content": "你好"}]}
REAL: dict[str, object] = {
    "model": "default",
    "messages": [{"role": "user", "content": "讲一个故事。Tell a story."}],
    "max_tokens": 40,
    "ignore_eos": True,
}
SERVE = ("-m", "tenuto", "serve", "--port", "0", "--precision", "int8")


async def _ended_under_load(server: Served, body: dict[str, object], num_clients: int, *numbers: int) -> list[Streamed]:
    """All clients have their first token when the signals come."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=server.url, timeout=120, limits=limits) as client:
        started = [asyncio.Event() for _ in range(num_clients)]
        running = [asyncio.create_task(stream(client, body, one)) for one in started]
        async with asyncio.timeout(90):
            for one in started:
                await one.wait()
        server.process.send_signal(numbers[0])
        for _ in range(1000):
            if (await client.get("/ready")).status_code == 503:
                break
            await asyncio.sleep(0.02)
        late = await stream(client, body)
        assert (late.status, late.error) == (503, "engine_closed"), "new work goes elsewhere"
        for number in numbers[1:]:
            server.process.send_signal(number)
        return await asyncio.gather(*running)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_runs_is_finished(number: int) -> None:
    with served(["-c", SCRIPTED, "100", "15", "0.1", "60"]) as server:
        seen = asyncio.run(_ended_under_load(server, SMALL, 30, number))
        assert server.process.wait(STOP_DEADLINE_S) == 0
        assert all(one.whole and one.num_pieces == 15 for one in seen)
        assert "closed in order\n" in server.lines


def test_what_outlives_the_deadline_is_told() -> None:
    with served(["-c", SCRIPTED, "100", "3000", "0.1", "1"]) as server:
        seen = asyncio.run(_ended_under_load(server, SMALL, 30, signal.SIGTERM))
        assert server.process.wait(STOP_DEADLINE_S) == 0
        assert all(one.told and one.error == "engine_closed" and one.num_pieces > 0 for one in seen)
        assert any("drain_overdue" in line for line in server.lines)


def test_a_second_signal_ends_at_once_and_still_tells() -> None:
    with served(["-c", SCRIPTED, "100", "3000", "0.1", "600"]) as server:
        start = time.monotonic()
        seen = asyncio.run(_ended_under_load(server, SMALL, 10, signal.SIGTERM, signal.SIGTERM))
        assert server.process.wait(STOP_DEADLINE_S) == 0
        assert time.monotonic() - start < 300, "it did not wait for the deadline of 600 s"
        assert all(one.told and one.error == "engine_closed" for one in seen)


@pytest.mark.model
def test_the_real_server_finishes_what_it_has_accepted() -> None:
    with served([*SERVE, "--drain-s", "80", "--log-format", "json"]) as server:
        seen = asyncio.run(_ended_under_load(server, REAL, 6, signal.SIGTERM))
        assert server.process.wait(STOP_DEADLINE_S) == 0
        assert all(one.whole and one.finish == "length" for one in seen)


@pytest.mark.model
@pytest.mark.soak
@pytest.mark.parametrize("drain_s", ["0", "1", "90"])
def test_the_real_server_under_load_finishes_or_tells(drain_s: str) -> None:
    with served([*SERVE, "--drain-s", drain_s]) as server:
        seen = asyncio.run(_ended_under_load(server, {**REAL, "max_tokens": 200}, 24, signal.SIGTERM))
        assert server.process.wait(STOP_DEADLINE_S) == 0
        assert all(one.whole or one.told for one in seen)
        assert any(one.told for one in seen) or drain_s == "90"
