"""POST /v1/embeddings and /v1/rerank in the forms that clients know."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import FastAPI
from server_harness import call

from chat_harness import TOKENIZER
from tenuto.clock import RealClock
from tenuto.embedding import EnginePooler, LocalEmbedder, SimilarityReranker, TextRules
from tenuto.errors import QueueFull
from tenuto.ids import IdSource
from tenuto.protocol.embedding import EmbedderInfo, Embeddings, EmbedRequest
from tenuto.server import OtherClients, create_app
from tenuto.testing.scripted_engine import HIDDEN_SIZE, ScriptedEngine
from tenuto.testing.scripted_model import ScriptedModel
from tenuto.text.frame import Frame

EMBEDDINGS, RERANK = "/v1/embeddings", "/v1/rerank"


def embedder(name: str) -> LocalEmbedder:
    rules = TextRules(TOKENIZER, Frame(), max_model_tokens=40, prompts={"query": "问："})
    info = EmbedderInfo(model=name, num_dimensions=HIDDEN_SIZE, max_model_tokens=40, pooling="mean", normalise=True)
    return LocalEmbedder(EnginePooler(ScriptedEngine([])), rules, info, clock=RealClock())


def app_with(name: str = "smol", **others: Any) -> FastAPI:
    one = embedder(name)
    clients = {"embedder": one, "reranker": SimilarityReranker(one, clock=RealClock()), **others}
    return create_app(
        ScriptedModel([]),
        served_names=("smol", "org/smol"),
        clock=RealClock(),
        ids=IdSource(1),
        others=OtherClients(**clients),
    )


def post(path: str, app: FastAPI | None = None, **fields: Any) -> httpx.Response:
    return call(app or app_with(), "POST", path, json={"model": "default", **fields})


def vectors(response: httpx.Response) -> np.ndarray:
    body = response.json()
    assert response.status_code == 200, body
    assert [one["index"] for one in body["data"]] == list(range(len(body["data"])))
    assert (body["object"], body["data"][0]["object"]) == ("list", "embedding")
    return np.array([one["embedding"] for one in body["data"]], dtype=np.float32)


def test_every_form_of_input_gives_the_same_vectors():
    texts = ["猫在垫子上", "Cats sleep."]
    ids = [TOKENIZER.encode(text) for text in texts]
    from_texts = vectors(post(EMBEDDINGS, input=texts))
    assert from_texts.shape == (2, HIDDEN_SIZE)
    assert np.allclose(np.linalg.norm(from_texts, axis=1), 1, atol=1e-6)
    assert np.array_equal(vectors(post(EMBEDDINGS, input=ids)), from_texts)
    assert np.array_equal(vectors(post(EMBEDDINGS, input=texts[0])), from_texts[:1])
    assert np.array_equal(vectors(post(EMBEDDINGS, input=ids[0])), from_texts[:1])


def test_usage_counts_tokens():
    body = post(EMBEDDINGS, input=["猫", "狗和猫"]).json()
    num_tokens = sum(len(TOKENIZER.encode(text)) for text in ("猫", "狗和猫"))
    assert body["usage"] == {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    assert body["model"] == "smol"


def test_base64_is_little_endian_float32():
    floats = vectors(post(EMBEDDINGS, input=["猫", "狗"]))
    encoded = post(EMBEDDINGS, input=["猫", "狗"], encoding_format="base64").json()
    decoded = [np.frombuffer(base64.b64decode(one["embedding"]), dtype="<f4") for one in encoded["data"]]
    assert np.array_equal(np.stack(decoded), floats)


def test_many_vectors_are_all_there():
    assert vectors(post(EMBEDDINGS, input=[f"第{n}句" for n in range(100)])).shape == (100, HIDDEN_SIZE)


def test_fewer_dimensions_are_normalised_again():
    found = vectors(post(EMBEDDINGS, input="猫在垫子上", dimensions=4))
    assert found.shape == (1, 4) and np.isclose(np.linalg.norm(found), 1, atol=1e-6)


def test_prompts_and_cutting_are_the_models():
    with_prompt = vectors(post(EMBEDDINGS, input="猫", prompt="query"))
    assert np.array_equal(with_prompt, vectors(post(EMBEDDINGS, input="问：猫")))
    assert vectors(post(EMBEDDINGS, input="word " * 100, truncate=True)).shape == (1, HIDDEN_SIZE)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": [""]}, "input[0]"),
        ({"input": ["a", None]}, "input[1]"),
        ({"input": [[10**8]]}, "input[0]"),
        ({"input": ["a"] * 2049}, "input"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "dimensions": 9}, "dimensions"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "a", "prompt": "nope"}, "prompt"),
        ({"input": "word " * 100}, None),
    ],
)
def test_what_is_refused(fields: dict[str, Any], param: str | None):
    response = post(EMBEDDINGS, **fields)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param), response.text


def test_names_are_those_of_the_model_that_embeds():
    for name in ("smol", "org/smol", "default"):
        assert post(EMBEDDINGS, input="猫", model=name).json()["model"] == "smol"
    other = app_with("bge-small")
    for path, fields in ((EMBEDDINGS, {"input": "猫"}), (RERANK, {"query": "猫", "documents": ["狗"]})):
        for name in ("bge-small", "default"):
            assert post(path, other, model=name, **fields).json()["model"] == "bge-small"
        refused = post(path, other, model="smol", **fields)
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")
    listed = [card["id"] for card in call(other, "GET", "/v1/models").json()["data"]]
    assert listed == ["smol", "org/smol", "default", "bge-small"]
    card = call(other, "GET", "/v1/models/bge-small").json()
    assert (card["id"], card["max_model_tokens"]) == ("bge-small", 40)
    without = app_with(embedder=None, reranker=None)
    for path, fields in ((EMBEDDINGS, {"input": "猫"}), (RERANK, {"query": "猫", "documents": ["狗"]})):
        assert post(path, without, **fields).status_code == 404


class Full:
    async def info(self) -> EmbedderInfo:
        return await embedder("smol").info()

    async def embed(self, request: EmbedRequest) -> Embeddings:
        raise QueueFull("8192 texts are waiting already")


def test_a_full_queue_is_429():
    response = post(EMBEDDINGS, app_with(embedder=Full()), input="猫")
    assert response.status_code == 429 and "retry-after" in response.headers


def test_documents_come_back_in_order_of_relevance():
    documents = ["狗在跑", "猫在垫子上", {"text": "猫在垫子上睡觉"}]
    body = post(RERANK, query="猫在垫子上", documents=documents).json()
    assert body["results"][0]["index"] == 1
    assert np.isclose(body["results"][0]["relevance_score"], 1, atol=1e-6)
    scores = [one["relevance_score"] for one in body["results"]]
    assert scores == sorted(scores, reverse=True)
    assert [one["document"]["text"] for one in body["results"]] == [
        documents[one["index"]] if isinstance(documents[one["index"]], str) else documents[one["index"]]["text"]
        for one in body["results"]
    ]
    assert body["id"].startswith("rerank-") and body["usage"]["total_tokens"] > 0
    best = post(RERANK, query="猫在垫子上", documents=documents, top_n=1, return_documents=False).json()
    assert best["results"] == [{"index": 1, "relevance_score": scores[0]}]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"documents": ["a"]}, "query"),
        ({"query": " ", "documents": ["a"]}, "query"),
        ({"query": "a"}, "documents"),
        ({"query": "a", "documents": []}, "documents"),
        ({"query": "a", "documents": [1]}, "documents[0]"),
        ({"query": "a", "documents": [{"image": "x"}]}, "documents[0].text"),
        ({"query": "a", "documents": ["b"] * 2049}, "documents"),
        ({"query": "a", "documents": ["b"], "top_n": 0}, "top_n"),
        ({"query": "a", "documents": ["word " * 100]}, None),
    ],
)
def test_what_rerank_refuses(fields: dict[str, Any], param: str | None):
    response = post(RERANK, **fields)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param), response.text
