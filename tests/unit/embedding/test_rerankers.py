"""Documents in order: pairs for a cross-encoder, similarity for other models."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tenuto.checkpoint import TokenizerFiles
from tenuto.clock import RealClock
from tenuto.embedding import CrossEncoderReranker, QueuedText, SimilarityReranker, TextQueue, TextRules
from tenuto.errors import ContextLengthError, InvalidRequest
from tenuto.protocol.embedding import (
    EmbedderInfo,
    Embeddings,
    EmbedRequest,
    EmbedUsage,
    Ranking,
    RerankerInfo,
    RerankRequest,
)
from tenuto.text.frame import read_frame
from tenuto.text.tokenizer import Tokenizer
from tiny_encoders import VOCAB, word_tokenizer

INFO = RerankerInfo(model="fake", method="cross-encoder", max_model_tokens=10)


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> TextRules:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    word_tokenizer().save(str(path))
    tokenizer = Tokenizer.from_files(TokenizerFiles(json_path=path), 64)
    return TextRules(tokenizer, read_frame(Path(path), 64), max_model_tokens=10)


class Judge:
    """A classifier that likes documents with the word "cat", and the more so the shorter they are."""

    def __init__(self) -> None:
        self.pairs: list[tuple[list[str], tuple[int, ...]]] = []

    def __call__(self, texts: Sequence[QueuedText]) -> np.ndarray:
        self.pairs += [([VOCAB[i] for i in one.text.ids], one.text.types) for one in texts]
        scores = [[(VOCAB.index("cat") in one.text.ids) * 5.0 - one.num_tokens] for one in texts]
        return np.array(scores, dtype=np.float32)


def rerank(rules: TextRules, judge: Judge, request: RerankRequest, *, sigmoid: bool = False) -> Ranking:
    async def main() -> Ranking:
        async with TextQueue(judge) as queue:
            client = CrossEncoderReranker(queue, rules, INFO, sigmoid=sigmoid, clock=RealClock())
            return await client.rerank(request)

    return asyncio.run(main())


def test_the_model_reads_query_and_document_together(rules: TextRules) -> None:
    judge = Judge()
    request = RerankRequest(query="where", documents=("stocks fell", "the cat sat", "猫", "the cat"))
    ranking = rerank(rules, judge, request)
    assert judge.pairs[1] == (["[CLS]", "where", "[SEP]", "the", "cat", "sat", "[SEP]"], (0, 0, 0, 1, 1, 1, 1))
    assert [place.index for place in ranking.documents] == [3, 1, 2, 0]
    assert [place.score for place in ranking.documents] == [-1, -2, -5, -6]
    assert ranking.usage.num_tokens == sum(len(pair[0]) for pair in judge.pairs)


def test_a_sigmoid_changes_scores_and_no_order(rules: TextRules) -> None:
    request = RerankRequest(query="where", documents=("the cat", "stocks fell"), top_n=1)
    ranking = rerank(rules, Judge(), request, sigmoid=True)
    assert [place.index for place in ranking.documents] == [0]
    assert ranking.documents[0].score == pytest.approx(1 / (1 + np.exp(1)))


def test_equal_scores_keep_their_order(rules: TextRules) -> None:
    ranking = rerank(rules, Judge(), RerankRequest(query="where", documents=("dog", "mat", "road")))
    assert [place.index for place in ranking.documents] == [0, 1, 2]


def test_only_documents_are_cut(rules: TextRules) -> None:
    long = "the dog sat on the mat on the road"
    with pytest.raises(ContextLengthError, match=r"the query with document 1 needs 13 tokens.*truncate"):
        rerank(rules, Judge(), RerankRequest(query="cat", documents=("dog", long)))
    judge = Judge()
    ranking = rerank(rules, judge, RerankRequest(query="cat", documents=("dog", long), truncate=True))
    assert judge.pairs[1][0] == ["[CLS]", "cat", "[SEP]", *["the", "dog", "sat", "on", "the", "mat"], "[SEP]"]
    assert ranking.usage.num_truncated == 1
    with pytest.raises(ContextLengthError, match="shorten the query"):
        rerank(rules, Judge(), RerankRequest(query=long, documents=("dog",), truncate=True))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"documents": ()}, "0 documents"),
        ({"query": " \n"}, "the query is empty"),
        ({"top_n": 0}, "top_n is 0"),
        ({"timeout_s": -1.0}, "timeout_s"),
        ({"documents": ("x" * 2_000_000,)}, "characters"),
    ],
)
def test_requests_that_make_no_sense(rules: TextRules, fields: dict[str, Any], message: str) -> None:
    request = RerankRequest(**{"query": "where", "documents": ("dog",), **fields})
    with pytest.raises(InvalidRequest, match=message):
        rerank(rules, Judge(), request)


class Directions:
    """An embedder whose vectors are unit vectors of the plane: the text is an angle in degrees."""

    def __init__(self, *prompts: str) -> None:
        self.prompts = prompts
        self.requests: list[EmbedRequest] = []

    async def info(self) -> EmbedderInfo:
        prompts = tuple((name, f"{name}: ") for name in self.prompts)
        return EmbedderInfo(
            model="plane", num_dimensions=2, max_model_tokens=9, pooling="mean", normalise=False, prompts=prompts
        )

    async def embed(self, request: EmbedRequest) -> Embeddings:
        self.requests.append(request)
        angles = np.radians([float(text) for text in request.inputs])  # type: ignore[arg-type]
        vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
        return Embeddings(vectors=vectors, usage=EmbedUsage(num_tokens=len(request.inputs)))


def test_similarity_is_the_cosine() -> None:
    embedder = Directions()
    client = SimilarityReranker(embedder, clock=RealClock())
    ranking = asyncio.run(client.rerank(RerankRequest(query="10", documents=("190", "70", "20", "100"), top_n=3)))
    assert [place.index for place in ranking.documents] == [2, 1, 3]
    scores = [place.score for place in ranking.documents]
    np.testing.assert_allclose(scores, np.cos(np.radians([10, 60, 90])), atol=1e-6)
    assert all(request.normalise and request.prompt is None for request in embedder.requests)
    assert ranking.usage.num_tokens == 5
    assert asyncio.run(client.info()).method == "similarity"


def test_a_models_prompts_for_queries_and_documents_are_used() -> None:
    embedder = Directions("passage", "query")
    client = SimilarityReranker(embedder, clock=RealClock())
    asyncio.run(client.rerank(RerankRequest(query="10", documents=("20",), truncate=True)))
    assert [request.prompt for request in embedder.requests] == ["query", "passage"]
    assert [request.truncate for request in embedder.requests] == [False, True]
