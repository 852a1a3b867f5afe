"""The real small model behind responses, completions, embeddings and reranking: one engine for all of them."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import httpx
import numpy as np
import pytest

from tenuto.clock import RealClock
from tenuto.config import Config
from tenuto.ids import IdSource
from tenuto.server import OtherClients, create_app
from tenuto.wiring import LoadedModel, running
from tenuto.wiring_vectors import vector_clients

pytestmark = pytest.mark.model

WEATHER = {
    "type": "function",
    "name": "weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
PING = {"type": "function", "name": "ping"}
ROME, COUNT = "The capital of Italy is", "1, 2, 3, 4,"


class Served:
    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def post(self, path: str, **body: Any) -> Any:
        response = await self._client.post(path, json={"model": "default", "temperature": 0, **body})
        assert response.status_code == 200, response.text
        return response.json()


async def check_responses(served: Served) -> None:
    asked = {"max_output_tokens": 8, "instructions": "You are brief. 请简短回答。"}
    first = await served.post("/v1/responses", input="What is the capital of France?", **asked)
    second = await served.post("/v1/responses", input="And of Italy?", previous_response_id=first["id"], **asked)
    known = first["usage"]["input_tokens"] + first["usage"]["output_tokens"]
    cached = second["usage"]["input_tokens_details"]["cached_tokens"]
    assert cached >= (known - 2) // 16 * 16 > 0
    assert second["usage"]["tenuto"]["reuse_break"] is None
    items = [{"role": "user", "content": "What is the capital of France?"}, *first["output"]]
    by_hand = await served.post("/v1/responses", input=[*items, {"role": "user", "content": "And of Italy?"}], **asked)
    assert by_hand["usage"]["input_tokens"] == second["usage"]["input_tokens"]
    assert by_hand["output"][0]["content"] == second["output"][0]["content"]


async def check_calls(served: Served) -> None:
    asked = {"input": "What is the weather in Paris?", "tools": [WEATHER, PING], "max_output_tokens": 32}
    forced = await served.post("/v1/responses", tool_choice={"type": "function", "name": "weather"}, **asked)
    calls = [item for item in forced["output"] if item["type"] == "function_call"]
    assert {call["name"] for call in calls} == {"weather"}
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "ping"}]}
    only = await served.post("/v1/responses", tool_choice=allowed, parallel_tool_calls=False, **asked)
    assert [item["name"] for item in only["output"] if item["type"] == "function_call"] == ["ping"]
    assert only["usage"]["input_tokens"] == forced["usage"]["input_tokens"]
    none = await served.post("/v1/responses", tool_choice="none", **asked)
    assert none["usage"]["input_tokens"] < forced["usage"]["input_tokens"], "the model is told of no tools"
    assert {item["type"] for item in none["output"]} == {"message"}


async def check_completions(served: Served) -> None:
    one, other = await asyncio.gather(
        served.post("/v1/completions", prompt=ROME, max_tokens=8),
        served.post("/v1/completions", prompt=COUNT, max_tokens=8),
    )
    both = await served.post("/v1/completions", prompt=[ROME, COUNT], n=2, max_tokens=8, logprobs=1)
    texts = [choice["text"] for choice in both["choices"]]
    assert texts == [one["choices"][0]["text"]] * 2 + [other["choices"][0]["text"]] * 2
    assert " 5, 6" in texts[2]
    usage = both["usage"]
    assert usage["prompt_tokens"] == one["usage"]["prompt_tokens"] + other["usage"]["prompt_tokens"]
    reuse = usage["tenuto"]
    assert reuse["shared_tokens"] + reuse["computed_tokens"] == usage["prompt_tokens"]
    for choice in both["choices"]:
        assert "".join(choice["logprobs"]["tokens"]) == choice["text"]
        assert all(max(top.values()) <= 0 for top in choice["logprobs"]["top_logprobs"])
    stopped = await served.post("/v1/completions", prompt=COUNT, stop=" 6", max_tokens=8, n=2, logprobs=0)
    for choice in stopped["choices"]:
        assert choice["text"] == " 5," and choice["finish_reason"] == "stop"
        assert "".join(choice["logprobs"]["tokens"]) == " 5,"
    assert stopped["usage"]["completion_tokens"] < 24


async def check_vectors(served: Served) -> None:
    texts = ["The cat sat on the mat.", "今天北京的天气怎么样？"]
    found = await served.post("/v1/embeddings", input=texts)
    vectors = np.array([one["embedding"] for one in found["data"]])
    assert vectors.shape[0] == 2 and np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    alone = await served.post("/v1/embeddings", input=texts[1])
    np.testing.assert_allclose(alone["data"][0]["embedding"], vectors[1], atol=1e-5)
    ranking = await served.post("/v1/rerank", query=texts[1], documents=texts, top_n=1)
    assert [one["index"] for one in ranking["results"]] == [1]
    assert ranking["results"][0]["relevance_score"] == pytest.approx(1, abs=1e-5)


def test_every_route_over_one_engine(loaded: LoadedModel, config: Config) -> None:
    async def main() -> None:
        clock, ids = RealClock(), IdSource()
        async with (
            running(loaded, config, clock=clock, ids=ids) as started,
            vector_clients(config, started, clock) as vectors,
        ):
            others = OtherClients(completion=started.completion, embedder=vectors.embedder, reranker=vectors.reranker)
            app = create_app(started.model, served_names=(loaded.name,), clock=clock, ids=ids, others=others)
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://tenuto") as client:
                served = Served(client)
                for check in (check_responses, check_calls, check_completions, check_vectors):
                    await check(served)
            levels = (await started.engine.counters()).levels
            assert levels is not None and levels.num_sessions == 0, "no session is left behind"

    anyio.run(main)
