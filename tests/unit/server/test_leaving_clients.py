"""A client that leaves stops the work of every route at once, and nothing of it stays."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from responses_harness import typed_events
from server_harness import noted, until
from structlog.testing import capture_logs

from chat_harness import TOKENIZER
from tenuto.chat import LocalCompletionClient
from tenuto.clock import RealClock
from tenuto.ids import IdSource
from tenuto.protocol.embedding import EmbedderInfo, RerankerInfo
from tenuto.server import BoundAddress, OtherClients, WebServer, create_app
from tenuto.testing.scripted_engine import ScriptedEngine
from tenuto.testing.scripted_model import Reply, ScriptedModel

ENDLESS = Reply("字" * 300_000, piece_delay_s=0.001)


async def leave(app: FastAPI, path: str, body: dict[str, Any], at_work: asyncio.Event) -> None:
    """Send a request, and go once the work has begun."""
    content = json.dumps({"model": "smol", **body}).encode()
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    scope |= {"headers": [(b"content-type", b"application/json")], "http_version": "1.1", "scheme": "http"}
    scope |= {"asgi": {"version": "3.0", "spec_version": "2.3"}, "server": ("127.0.0.1", 80), "root_path": ""}
    scope |= {"client": ("127.0.0.1", 1)}
    sent_body = False

    async def receive() -> dict[str, object]:
        nonlocal sent_body
        if not sent_body:
            sent_body = True
            return {"type": "http.request", "body": content, "more_body": False}
        await at_work.wait()
        return {"type": "http.disconnect"}

    async def send(_: object) -> None:
        await asyncio.sleep(0)

    with capture_logs() as logs:
        async with asyncio.timeout(10):
            await app(scope, receive, send)
    assert [entry["event"] for entry in noted(logs)] == ["client_disconnected"]


def app_with(model: ScriptedModel | None = None, **others: Any) -> FastAPI:
    return create_app(
        model or ScriptedModel([]),
        served_names=("smol",),
        clock=RealClock(),
        ids=IdSource(1),
        others=OtherClients(**others),
    )


@pytest.mark.parametrize("stream", [False, True])
def test_a_completion(stream: bool):
    """B37: of several prompts with several choices, all."""

    async def main() -> None:
        at_work = asyncio.Event()

        def next_token(tokens: Any) -> int:
            if len(tokens) > 20:
                at_work.set()
            return 500

        engine = ScriptedEngine(next_token, max_model_tokens=10**6)
        client = LocalCompletionClient(engine, TOKENIZER, ids=IdSource(3), clock=RealClock())
        body = {"prompt": ["一", "二"], "n": 2, "max_tokens": 100_000, "stream": stream}
        await leave(app_with(completion=client), "/v1/completions", body, at_work)
        assert engine.sessions == {} and engine.num_calls["open"] == 4

    asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True])
def test_a_response(stream: bool):
    """B37: nothing of it is kept."""

    async def main() -> None:
        at_work = asyncio.Event()

        def script(_: Any) -> Reply:
            asyncio.get_running_loop().call_later(0.05, at_work.set)
            return ENDLESS

        model = ScriptedModel(script)
        await leave(app_with(model), "/v1/responses", {"input": "你好", "stream": stream}, at_work)
        assert model.seen.cancelled == model.seen.requests != []

    asyncio.run(main())


class Waiting:
    """Embeds, or ranks, for ever."""

    def __init__(self, info: Any) -> None:
        self._info = info
        self.at_work = asyncio.Event()
        self.cancelled = False

    async def info(self) -> Any:
        return self._info

    async def embed(self, _: Any) -> Any:
        self.at_work.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise

    rerank = embed


def test_embeddings_and_a_ranking():
    async def main() -> None:
        info = EmbedderInfo(model="smol", num_dimensions=3, max_model_tokens=8, pooling="mean", normalise=False)
        embedder = Waiting(info)
        await leave(app_with(embedder=embedder), "/v1/embeddings", {"input": "猫"}, embedder.at_work)
        ranker = Waiting(RerankerInfo(model="smol", method="similarity", max_model_tokens=8))
        body = {"query": "猫", "documents": ["狗"]}
        await leave(app_with(reranker=ranker), "/v1/rerank", body, ranker.at_work)
        assert embedder.cancelled and ranker.cancelled

    asyncio.run(main())


def test_a_response_that_outlives_the_drain_ends_as_responses_end():
    async def main() -> None:
        model = ScriptedModel(lambda _: ENDLESS)
        server = WebServer(app_with(model), BoundAddress("127.0.0.1", 0), drain_deadline_s=0.1)
        running = asyncio.create_task(server.run())
        async with httpx.AsyncClient(base_url=server.url, timeout=20) as client:
            body = {"model": "smol", "input": "你好", "stream": True}
            streamed = asyncio.create_task(client.post("/v1/responses", json=body))
            await asyncio.to_thread(until, lambda: len(model.seen.requests) == 1)
            await asyncio.sleep(0.1)  # it has begun
            server.stop()
            await asyncio.wait_for(running, 10)
            *_, last = typed_events(await streamed)
        assert (last["type"], last["response"]["error"]["code"]) == ("response.failed", "server_error")
        assert model.seen.cancelled == model.seen.requests

    asyncio.run(main())
