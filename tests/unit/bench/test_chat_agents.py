"""Any server with OpenAI's API: what it is sent, how its answers are counted, and what is wrong with some."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from bench_harness import SMALL
from fake_server import FakeServer
from starlette.responses import JSONResponse, Response

from tenuto.bench.chat_agents import ChatAgents, ChatServer, api_address, run_on_server
from tenuto.bench.driver import RunClock, drive
from tenuto.bench.records import TurnRecord
from tenuto.bench.shape import Shape
from tenuto.bench.sse import stream_events
from tenuto.bench.workload import make_texts
from tenuto.clock import RealClock
from tenuto.errors import ConfigError, TenutoError

TEXTS = make_texts(Shape(agents=2, turns=3, prompt_words=20, result_words=5, output_tokens=4, tool_s=0.0))
CHAT = "/v1/chat/completions"


def _prompt_tokens(body: dict[str, Any]) -> int:
    return sum(len(message["content"].split()) + 3 for message in body["messages"])


def _answer(body: dict[str, Any], generated: int | None = None, **usage: Any) -> list[dict[str, Any] | str]:
    num_tokens = body["max_tokens"] if generated is None else generated
    pieces = [{"choices": [{"delta": {"content": f"字{i} "}}]} for i in range(num_tokens)]
    counted = {"prompt_tokens": _prompt_tokens(body), "completion_tokens": num_tokens, **usage}
    return [": 注释", {"choices": [{"delta": {"role": "assistant"}}]}, *pieces, {"choices": [], "usage": counted}]


def _run(server: FakeServer) -> tuple[tuple[TurnRecord, ...], dict[str, Any]]:
    async def main() -> tuple[tuple[TurnRecord, ...], dict[str, Any]]:
        async with server.http() as http:
            asked, clock = ChatServer(partial(stream_events, http), "http://fake/v1", "模型"), RunClock(RealClock())
            await asked.warm_up(clock)
            return await drive(ChatAgents(asked, TEXTS, clock), TEXTS.shape, at_once=True), asked.more

    return asyncio.run(main())


def test_every_turn_sends_the_whole_history_as_text() -> None:
    server = FakeServer(CHAT, _answer)
    turns, _ = _run(server)
    assert [(t.agent, t.turn, t.num_out) for t in turns] == [(a, t, 4) for a in range(2) for t in range(3)]
    last = [body["messages"] for body in server.bodies if len(body["messages"]) == 6]
    assert len(last) == 2
    assert [m["role"] for m in last[0]] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert last[0][0]["content"] == TEXTS.system and last[0][2]["content"] == "字0 字1 字2 字3 "
    assert all(body["ignore_eos"] and body["stream"] and body["temperature"] == 0 for body in server.bodies)


def test_tokens_are_counted_by_the_servers_usage() -> None:
    server = FakeServer(CHAT, lambda body: _answer(body, prompt_tokens_details={"cached_tokens": 7}))
    turns, _ = _run(server)
    for t in turns:
        assert t.num_shared == 7 and t.num_computed == t.num_context - 7
    for before, after in pairwise(turns[:3]):
        assert after.num_in == after.num_context - before.num_context - 4
    silent, _ = _run(FakeServer(CHAT, _answer))
    assert all(t.num_shared is None and t.num_computed is None for t in silent)


def test_chunks_of_several_tokens_count_as_what_the_usage_says() -> None:
    def answer(body: dict[str, Any]) -> list[dict[str, Any] | str]:
        whole = {"choices": [{"delta": {"content": "all at once"}}]}
        return [whole, {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": body["max_tokens"]}}]

    turns, _ = _run(FakeServer(CHAT, answer))
    assert {t.num_out for t in turns} == {4}


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_thinking_counts_as_tokens_but_not_as_history(name: str) -> None:
    def answer(body: dict[str, Any]) -> list[dict[str, Any] | str]:
        pieces = [{"choices": [{"delta": {name: "想", "content": None}}]} for _ in range(body["max_tokens"] - 1)]
        whole = {"choices": [{"delta": {"content": "好"}}]}
        usage = {"prompt_tokens": _prompt_tokens(body), "completion_tokens": body["max_tokens"]}
        return [*pieces, whole, {"choices": [], "usage": usage}]

    server = FakeServer(CHAT, answer)
    turns, _ = _run(server)
    assert all(t.num_out == 4 and t.first_s < t.end_s for t in turns), "the first token is the first of the thinking"
    assert {m["content"] for body in server.bodies for m in body["messages"] if m["role"] == "assistant"} == {"好"}


def test_a_server_that_does_not_know_ignore_eos_is_asked_without() -> None:
    def answer(body: dict[str, Any]) -> list[dict[str, Any] | str] | Response:
        if "ignore_eos" in body:
            return JSONResponse({"error": {"message": "unknown field ignore_eos"}}, 400)
        return _answer(body)

    server = FakeServer(CHAT, answer)
    turns, more = _run(server)
    assert len(turns) == 6 and more == {}
    assert sum("ignore_eos" in body for body in server.bodies) == 1


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda body: JSONResponse({"error": "没有钥匙"}, 401), "status 401.*没有钥匙"),
        (lambda body: _answer(body)[:-1], "reports no usage"),
        (lambda body: _answer(body, generated=1), "generated 1 tokens in turn 0 where 4 were asked for"),
        (lambda body: ["data: {no json"], "no JSON"),
        (lambda body: ["data: [1]"], "no object"),
        (lambda body: [{"error": {"message": "out of memory"}}], "broke off.*out of memory"),
        (lambda body: _answer(body, prompt_tokens="many"), "no prompt_tokens"),
    ],
)
def test_servers_that_fail_or_count_otherwise_are_told_of(answer: Any, message: str) -> None:
    with pytest.raises(TenutoError, match=message):
        _run(FakeServer(CHAT, answer))


def test_addresses() -> None:
    assert api_address("http://localhost:8000") == api_address("http://localhost:8000/") == "http://localhost:8000/v1"
    assert api_address("https://a.b/openai/v2/") == "https://a.b/openai/v2"
    for wrong in ("localhost:8000", "ftp://a", "http://", "http://a?x=1", "模型"):
        with pytest.raises(ConfigError, match="no address"):
            api_address(wrong)


def test_nobody_listens() -> None:
    with pytest.raises(TenutoError, match=r"127\.0\.0\.1:9/v1/models"):
        asyncio.run(run_on_server("http://127.0.0.1:9", make_texts(SMALL), RealClock()))
