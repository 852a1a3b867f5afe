"""Many streaming clients at once: those let in finish, the excess is refused, memory stays flat."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from serving_process import SCRIPTED, Streamed, served, stream_many

SMALL = {"model": "m", "messages": [{"role": "user", "content": "你好"}]}


def _check(seen: list[Streamed], max_requests: int) -> list[Streamed]:
    let_in = [one for one in seen if one.status == 200]
    refused = [one for one in seen if one.status != 200]
    assert all(one.whole for one in let_in), "who is let in finishes"
    assert {one.status for one in refused} <= {429}
    assert all(one.retry_after is not None and 1 <= int(one.retry_after) <= 60 for one in refused)
    assert all(one.error == "rate_limit_exceeded" for one in refused)
    assert len(let_in) >= max_requests
    return let_in


@pytest.mark.parametrize(("num_clients", "max_requests"), [(60, 25), pytest.param(500, 200, marks=pytest.mark.soak)])
def test_the_excess_is_refused_and_memory_stays_flat(num_clients: int, max_requests: int) -> None:
    # Replies last longer than it takes all clients to arrive, so that no place becomes free meanwhile.
    num_pieces = 20 if num_clients < 100 else 100
    arguments = ["-c", SCRIPTED, str(max_requests), str(num_pieces), "0.1", "30"]
    with served(arguments) as server:
        rounds, rss = (4 if num_clients < 100 else 8), []
        for _ in range(rounds):
            seen = asyncio.run(stream_many(server.url, [SMALL] * num_clients))
            assert len(_check(seen, max_requests)) == max_requests
            assert sum(one.num_pieces for one in seen) == max_requests * num_pieces
            rss.append(server.rss_bytes())
        assert rss[-1] - rss[0] < 8 * 1024 * 1024, rss
        metrics = httpx.get(server.url + "/metrics").text
        route = 'method="POST",route="/v1/chat/completions"'
        assert f'tenuto_http_requests_total{{{route},status="200"}} {rounds * max_requests}.0' in metrics
        refused = rounds * (num_clients - max_requests)
        assert f'tenuto_http_requests_total{{{route},status="429"}} {refused}.0' in metrics
        assert "tenuto_http_requests_open 1.0" in metrics


@pytest.mark.model
@pytest.mark.soak
def test_500_clients_on_the_real_model() -> None:
    """The queue limit bounds the wait: with 64 places, the last of them waits for at most 63 others."""
    num_clients, max_requests = 500, 64
    arguments = ["-m", "tenuto", "serve", "--port", "0", "--max-requests", str(max_requests), "--precision", "int8"]
    with served(arguments) as server:
        bodies = [
            {
                "model": "default",
                "messages": [{"role": "user", "content": f"{number}: 讲一个故事。Tell a story."}],
                "max_tokens": 24,
                "ignore_eos": True,
                "temperature": 0,
            }
            for number in range(num_clients)
        ]
        alone = asyncio.run(stream_many(server.url, bodies[:1]))
        rss = []
        for _ in range(3):
            seen = asyncio.run(stream_many(server.url, bodies))
            let_in = _check(seen, max_requests)
            assert all(one.finish == "length" for one in let_in)
            waits = [one.ttft_s for one in let_in if one.ttft_s is not None]
            assert len(waits) == len(let_in)
            rss.append(server.rss_bytes())
        assert alone[0].whole
        assert rss[-1] - rss[0] < 32 * 1024 * 1024, rss
        for line in httpx.get(server.url + "/metrics").text.splitlines():
            if line.startswith("tenuto_engine_kv_blocks"):
                state, count = line.split()
                assert float(count) == 0 or "free" in state or "cached" in state, line
