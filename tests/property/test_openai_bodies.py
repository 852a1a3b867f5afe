"""Whatever a client sends to the other routes, it gets an answer or a 4xx in OpenAI's shape; and a response says the
same however the model's events come."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
from hypothesis import event, given, settings
from hypothesis import strategies as st

from embedded_tokenizer import embedded_tokenizer
from tenuto.chat import LocalCompletionClient
from tenuto.clock import RealClock
from tenuto.embedding import EnginePooler, LocalEmbedder, SimilarityReranker, TextRules
from tenuto.ids import CallId, IdSource
from tenuto.protocol.chat import (
    ChatUsage,
    ReasoningDelta,
    ReplyFinished,
    ScoredToken,
    TextDelta,
    TokenScore,
    TokensScored,
    ToolCallDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from tenuto.protocol.embedding import EmbedderInfo
from tenuto.protocol.messages import Message, ToolCall
from tenuto.server import OtherClients, create_app
from tenuto.server.responses.writer import ResponseForm, ResponseWriter
from tenuto.testing.scripted_engine import HIDDEN_SIZE, ScriptedEngine
from tenuto.testing.scripted_model import Reply, ScriptedModel
from tenuto.text.frame import Frame

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def mostly(sound: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Mostly sound, so that the rest of the body is looked at too."""
    return st.integers(0, 9).flatmap(lambda die: JSON if die == 0 else sound)


def body(sound: dict[str, Any], optional: dict[str, Any], names: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(
        lambda one, odd: {"model": "default", **one, **odd},
        st.fixed_dictionaries(sound, optional=optional),
        st.dictionaries(st.sampled_from(names), JSON, max_size=1),
    )


TEXT = st.text(max_size=8)
ID = st.sampled_from(["c1", "c2", "msg_1"])
PART = st.fixed_dictionaries(
    {"type": mostly(st.sampled_from(["input_text", "output_text", "refusal"]))},
    optional={"text": mostly(TEXT), "refusal": TEXT},
)
CONTENT = mostly(TEXT | st.lists(PART, max_size=2))
THOUGHT = st.fixed_dictionaries({"type": st.just("reasoning_text"), "text": mostly(TEXT)})
ITEM = st.one_of(
    st.fixed_dictionaries(
        {"role": mostly(st.sampled_from(["system", "developer", "user", "assistant"])), "content": CONTENT}
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("function_call"),
            "call_id": mostly(ID),
            "name": mostly(st.just("ping")),
            "arguments": mostly(st.sampled_from(["{}", '{"a": 1}', "", "{", "[]", "null"])),
        },
        optional={"status": mostly(st.sampled_from(["completed", "incomplete"])), "id": ID},
    ),
    st.fixed_dictionaries({"type": st.just("function_call_output"), "call_id": mostly(ID), "output": CONTENT}),
    st.fixed_dictionaries({"type": st.just("reasoning"), "content": mostly(st.lists(THOUGHT, max_size=2))}),
    st.fixed_dictionaries({"type": st.just("item_reference"), "id": mostly(ID)}),
)
TOOL = st.fixed_dictionaries({"type": st.just("function"), "name": mostly(st.sampled_from(["ping", "天气"]))})
CHOICE = st.sampled_from(["auto", "none", "required"]) | st.fixed_dictionaries(
    {"type": st.sampled_from(["function", "allowed_tools"])},
    optional={
        "name": mostly(st.just("ping")),
        "mode": st.just("required"),
        "tools": mostly(st.lists(TOOL, max_size=1)),
    },
)
WORD = st.text(max_size=8).map(lambda text: text + "x")
DOCUMENT = st.fixed_dictionaries({"text": WORD})
IDS = st.lists(st.integers(0, 40_000), min_size=1, max_size=3)
TEXTS = mostly(WORD | st.lists(WORD | IDS, min_size=1, max_size=3) | IDS)
ROUTES: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "/v1/responses": body(
        {"input": mostly(TEXT | st.lists(ITEM, max_size=4))},
        {
            "tools": mostly(st.lists(TOOL, max_size=2)),
            "tool_choice": mostly(CHOICE),
            "stream": st.booleans(),
            "store": st.booleans(),
            "max_output_tokens": st.integers(1, 3),
        },
        ["text", "include", "metadata", "reasoning", "instructions", "previous_response_id", "top_logprobs", "stop"],
    ),
    "/v1/completions": body(
        {"prompt": TEXTS},
        {
            "n": st.integers(1, 3),
            "stream": st.booleans(),
            "logprobs": st.integers(0, 2),
            "stop": WORD,
            "echo": st.booleans(),
        },
        ["suffix", "best_of", "max_tokens", "stream_options", "logit_bias", "seed"],
    ),
    "/v1/embeddings": body(
        {"input": TEXTS},
        {"dimensions": st.integers(1, HIDDEN_SIZE + 1), "encoding_format": st.sampled_from(["float", "base64"])},
        ["prompt", "truncate", "user", "dimensions"],
    ),
    "/v1/rerank": body(
        {
            "query": mostly(TEXT),
            "documents": mostly(st.lists(TEXT | st.fixed_dictionaries({"text": TEXT}), max_size=3)),
        },
        {"top_n": st.integers(1, 3), "return_documents": st.booleans()},
        ["top_n", "truncate", "documents"],
    ),
}


def any_answer() -> Any:
    tokenizer, clock = embedded_tokenizer(), RealClock()
    engine = ScriptedEngine(lambda tokens: tokens[-1])
    info = EmbedderInfo(model="m", num_dimensions=HIDDEN_SIZE, max_model_tokens=40, pooling="mean", normalise=True)
    embedder = LocalEmbedder(EnginePooler(engine), TextRules(tokenizer, Frame(), 40), info, clock=clock)
    return create_app(
        ScriptedModel(lambda _: Reply("好", reasoning="想", calls=(("ping", {}),))),
        served_names=("m",),
        clock=clock,
        ids=IdSource(1),
        others=OtherClients(
            completion=LocalCompletionClient(engine, tokenizer, ids=IdSource(2), clock=clock),
            embedder=embedder,
            reranker=SimilarityReranker(embedder, clock=clock),
        ),
    )


APP = any_answer()


def post(path: str, content: bytes) -> httpx.Response:
    async def main() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(APP), base_url="http://tenuto") as client:
            return await client.post(path, content=content, headers={"Content-Type": "application/json"})

    return asyncio.run(main())


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(ROUTES)).flatmap(lambda path: st.tuples(st.just(path), ROUTES[path])))
def test_no_body_makes_a_route_fail(asked: tuple[str, dict[str, Any]]):
    path, fields = asked
    response = post(path, json.dumps(fields).encode())
    event(f"{path} {response.status_code}")
    assert response.status_code in (200, 400, 404), response.text
    if response.status_code != 200:
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    else:
        assert '"response.failed"' not in response.text and 'data: {"error"' not in response.text


def scored(text: str) -> TokensScored:
    return TokensScored(tokens=(TokenScore(token=ScoredToken(id=1, data=text.encode(), logprob=-1.0)),))


def call_events(pieces: list[str], finished: bool) -> list[Any]:
    call = ToolCall(id=CallId("c"), name="ping", arguments={})
    started: list[Any] = [ToolCallStarted(index=0, id=call.id, name="ping")]
    started += [ToolCallDelta(index=0, arguments=piece) for piece in pieces]
    return [*started, ToolCallFinished(index=0, call=call)] if finished else started


PIECES = st.lists(st.text(min_size=1, max_size=3), max_size=3)
EVENTS = st.lists(
    st.one_of(
        PIECES.map(lambda pieces: [TextDelta(text=piece) for piece in pieces]),
        PIECES.map(lambda pieces: [ReasoningDelta(text=piece) for piece in pieces]),
        st.text(max_size=2).map(lambda text: [scored(text)]),
        st.builds(call_events, PIECES, st.booleans()),
    ),
    max_size=6,
).map(lambda groups: [one for group in groups for one in group])


def events_of(data: bytes) -> list[dict[str, Any]]:
    blocks = data.decode().removesuffix("\n\n").split("\n\n")
    return [json.loads(block.split("\ndata: ")[1]) for block in blocks]


@settings(max_examples=300, deadline=None)
@given(EVENTS, st.sampled_from(["stop", "length", "tool_calls"]))
def test_deltas_add_up_to_the_response(made: list[Any], reason: Any):
    kept: list[Any] = []
    form = ResponseForm(name="x", created=1, model="m", echoed={})
    writer = ResponseWriter(form, lambda: 2, lambda response, message: kept.append(response))
    last = ReplyFinished(reason=reason, message=Message(role="assistant"), usage=ChatUsage())
    events = events_of(b"".join(piece for one in [*made, last] for piece in writer.pieces(one)))
    assert [one["sequence_number"] for one in events] == list(range(len(events)))
    items: list[dict[str, Any]] = []
    for one in events:
        if one["type"] == "response.output_item.added":
            assert one["output_index"] == len(items)
            items.append({"text": "", "scores": []})
        if one["type"].endswith(".delta"):
            assert one["output_index"] == len(items) - 1, "one item after the other"
            items[-1]["text"] += one["delta"]
            items[-1]["scores"] += one.get("logprobs", [])
    response = events[-1]["response"]
    assert kept == [writer.response] and response == json.loads(json.dumps(writer.response))
    assert len(items) == len(response["output"]) > 0
    for item, whole in zip(items, response["output"], strict=True):
        text = whole["arguments"] if whole["type"] == "function_call" else whole["content"][0]["text"]
        assert item["text"] == text
        if whole["type"] == "message":
            assert item["scores"] == whole["content"][0]["logprobs"]
    done = [one["item"] for one in events if one["type"] == "response.output_item.done"]
    assert done == response["output"]
    text = "".join(one.text for one in made if isinstance(one, TextDelta))
    said = [whole["content"][0]["text"] for whole in response["output"] if whole["type"] == "message"]
    assert "".join(said) == text
