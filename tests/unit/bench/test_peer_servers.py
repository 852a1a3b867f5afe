"""llama.cpp's and vLLM's ways of taking and telling ids."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from bench_harness import SMALL, small_workload
from fake_server import FakeServer

from tenuto.bench.driver import RunClock, drive
from tenuto.bench.peers import llama_cpp, vllm
from tenuto.bench.peers.completion_agents import CompletionAgents, Dialect, http_client
from tenuto.bench.records import TurnRecord
from tenuto.clock import RealClock
from tenuto.errors import TenutoError

WORKLOAD = small_workload(msgspec.structs.replace(SMALL, tool_s=0.0))


def _llama(body: dict[str, Any]) -> list[dict[str, Any] | str]:
    ids = [7 + i for i in range(body["n_predict"])]
    end = {"stop": True, "tokens": [], "tokens_evaluated": len(body["prompt"]), "timings": {"cache_n": 3}}
    return [*({"content": "字", "tokens": [i], "stop": False} for i in ids), end]


def _vllm(body: dict[str, Any]) -> list[dict[str, Any] | str]:
    ids = [7 + i for i in range(body["max_tokens"])]
    usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": len(ids)}
    return [
        {"choices": [{"text": "", "token_ids": ids[:2]}]},
        {"choices": [{"text": "", "token_ids": ids[2:]}], "usage": None},
        {"choices": [], "usage": {**usage, "prompt_tokens_details": {"cached_tokens": 3}}},
    ]


def _run(server: FakeServer, dialect: Dialect) -> tuple[TurnRecord, ...]:
    async def main() -> tuple[TurnRecord, ...]:
        async with server.http() as http:
            agents = CompletionAgents(http, "http://fake", dialect, WORKLOAD, RunClock(RealClock()))
            await agents.warm_up()
            return await drive(agents, WORKLOAD.shape, at_once=True)

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("dialect", "answer"), [(llama_cpp.dialect_without((5, 6)), _llama), (vllm.DIALECT, _vllm)], ids=["llama", "vllm"]
)
def test_ids_go_in_and_come_out_and_the_history_grows_by_both(dialect: Dialect, answer: Any) -> None:
    server = FakeServer(dialect.path, answer)
    turns = _run(server, dialect)
    for t in turns:
        assert t.num_in == len(WORKLOAD.pieces[t.agent][t.turn]) and t.num_out == 5
        assert t.num_shared == 3 and t.num_computed == t.num_context - 3
    pieces = WORKLOAD.pieces[0]
    whole = [*pieces[0], 7, 8, 9, 10, 11, *pieces[1]]
    assert whole in [body["prompt"] for body in server.bodies]
    assert all(body["ignore_eos"] and body["stream"] for body in server.bodies)


def test_llama_has_a_slot_for_each_agent_and_never_says_parts_of_characters() -> None:
    server = FakeServer("/completion", _llama)
    _run(server, llama_cpp.dialect_without((5, 6)))
    assert {body["id_slot"] for body in server.bodies} == {0, 1, 2}
    assert all(body["logit_bias"] == [[5, False], [6, False]] and body["cache_prompt"] for body in server.bodies)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda events: events[1:], "generated 4"),
        (lambda events: [*events[:-1], {**events[-1], "tokens_evaluated": 1}], "read 1 tokens"),
        (lambda events: events[:-1], "read None tokens"),
    ],
)
def test_a_server_that_counts_otherwise_is_told_of(change: Any, message: str) -> None:
    server = FakeServer("/completion", lambda body: change(_llama(body)))
    with pytest.raises(TenutoError, match=message):
        _run(server, llama_cpp.dialect_without(()))


def test_no_request_takes_the_connection_of_another() -> None:
    """Both servers close what was idle for a while, perhaps at the very moment of the next request."""
    connections: list[int] = []

    async def answer_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        await reader.read()  # another request on this connection waits for ever
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer_one, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, http_client() as http, asyncio.timeout(30):
            for _ in range(3):
                assert (await http.get(url)).json() == {}

    asyncio.run(main())
    assert len(connections) == 3
