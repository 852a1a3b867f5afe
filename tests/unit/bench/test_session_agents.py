"""Agents as sessions over HTTP, and as conversations in this process."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from bench_harness import small_workload
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tenuto.bench.driver import RunClock, drive
from tenuto.bench.model_agents import ModelAgents
from tenuto.bench.records import TurnRecord
from tenuto.bench.session_agents import SessionAgents
from tenuto.bench.shape import Shape
from tenuto.bench.workload import make_texts
from tenuto.clock import RealClock
from tenuto.errors import TenutoError
from tenuto.testing.scripted_model import ScriptedModel

SHAPE = Shape(agents=2, turns=3, prompt_words=20, result_words=6, output_tokens=4, tool_s=0.0, seed=3)
WORKLOAD = small_workload(SHAPE)


class _Sessions:
    """The routes that the agents use; remembers what each session was given."""

    def __init__(self, generated: int = SHAPE.output_tokens) -> None:
        self.given: dict[str, list[list[int]]] = {}
        self.suspended: list[tuple[str, float]] = []
        self.closed: list[str] = []
        self._generated = generated
        self.app = Starlette(
            routes=[
                Route("/v1/sessions", self._open, methods=["POST"]),
                Route("/v1/sessions/{name}/suspend", self._suspend, methods=["POST"]),
                Route("/v1/sessions/{name}/generate", self._generate, methods=["POST"]),
                Route("/v1/sessions/{name}", self._close, methods=["DELETE"]),
            ]
        )

    async def _open(self, request: Request) -> Response:
        name = (await request.json())["id"]
        if name in self.given:
            return JSONResponse({"error": {"message": "会话 exists"}}, 409)
        self.given[name] = []
        return JSONResponse({"id": name})

    async def _suspend(self, request: Request) -> Response:
        self.suspended.append((request.path_params["name"], (await request.json())["seconds"]))
        return JSONResponse({})

    async def _close(self, request: Request) -> Response:
        self.closed.append(request.path_params["name"])
        return JSONResponse({})

    async def _generate(self, request: Request) -> Response:
        body = await request.json()
        given = self.given[request.path_params["name"]]
        given.append(body["token_ids"])
        assert body["stream"] and body["ignore_eos"] and body["temperature"] == 0
        held = sum(len(ids) for ids in given[:-1])
        details = {"held_tokens": held, "shared_tokens": 1, "computed_tokens": len(given[-1]) - 1}
        usage = {"prompt_tokens": held + len(given[-1]), "prompt_tokens_details": details}
        events: list[dict[str, Any]] = [{"token_ids": [9, 9]}, {"token_ids": [7] * (self._generated - 2)}]
        events.append({"token_ids": [], "finish_reason": "length", "usage": usage})

        async def lines() -> Any:
            for event in events:
                yield f"data: {json.dumps(event)}\n\n"
            yield "data: [DONE]\n\n"

        return StreamingResponse(lines())


def _run(server: _Sessions) -> tuple[TurnRecord, ...]:
    async def main() -> tuple[TurnRecord, ...]:
        transport = httpx.ASGITransport(server.app)
        async with httpx.AsyncClient(transport=transport) as http:
            agents = SessionAgents(http, "http://fake/v1", WORKLOAD, RunClock(RealClock()), prefix="跑")
            turns = await drive(agents, SHAPE, at_once=True)
            await agents.close()
            return turns

    return asyncio.run(main())


def test_a_turn_sends_only_what_is_new() -> None:
    server = _Sessions()
    turns = _run(server)
    for agent, pieces in enumerate(WORKLOAD.pieces):
        assert server.given[f"跑-{agent}"] == [list(piece) for piece in pieces]
    assert [(t.agent, t.turn, t.num_out, t.ids) for t in turns[:1]] == [(0, 0, 4, (9, 9, 7, 7))]
    assert [t.num_held for t in turns if t.agent == 1] == [0, *_sums(len(p) for p in WORKLOAD.pieces[1])[:-1]]
    assert len(server.suspended) == 2 * (SHAPE.turns - 1) and sorted(server.closed) == ["跑-0", "跑-1"]


def _sums(numbers: Any) -> list[int]:
    total, sums = 0, []
    for number in numbers:
        total += number
        sums.append(total)
    return sums


def test_a_server_that_counts_otherwise_or_refuses_is_told_of() -> None:
    with pytest.raises(TenutoError, match="generated 5 tokens in turn 0 where 4 were asked for"):
        _run(_Sessions(generated=5))
    server = _Sessions()
    server.given["跑-0"] = []
    with pytest.raises(TenutoError, match=r"409.*exists"):
        _run(server)


def test_conversations_in_this_process_give_the_whole_history() -> None:
    model = ScriptedModel(lambda _: "一二三四", piece_chars=1)
    agents = ModelAgents(model, make_texts(SHAPE), RunClock(RealClock()))
    turns = asyncio.run(drive(agents, SHAPE, at_once=True))
    assert [t.num_out for t in turns] == [4] * 6 and all(t.num_computed == t.num_context for t in turns)
    longest = max(model.seen.requests, key=lambda request: len(request.messages))
    assert [m.role for m in longest.messages] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert all(request.ignore_eos and request.session is None for request in model.seen.requests)


def test_a_model_that_generates_otherwise_is_told_of() -> None:
    agents = ModelAgents(ScriptedModel(lambda _: "一", piece_chars=1), make_texts(SHAPE), RunClock(RealClock()))
    with pytest.raises(TenutoError, match="1 tokens were generated in turn 0 where 4 were asked for"):
        asyncio.run(drive(agents, SHAPE, at_once=True))
