"""`RerankClient` in this process: by a cross-encoder's score, or by the similarity of embeddings."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from tenuto.clock import Clock
from tenuto.embedding.embedder import TOO_SLOW, EmbedLimits, check_count, check_texts, within
from tenuto.embedding.inputs import TextRules, read_pairs
from tenuto.embedding.text_queue import QueuedText, TextQueue
from tenuto.errors import InvalidRequest
from tenuto.offload import Preparation
from tenuto.protocol.embedding import (
    EmbeddingClient,
    EmbedRequest,
    EmbedUsage,
    RankedDocument,
    Ranking,
    RerankerInfo,
    RerankRequest,
)

# What models call their prompts; the first that a model has is used.
_QUERY_PROMPTS = ("query",)
_DOCUMENT_PROMPTS = ("document", "passage")


class CrossEncoderReranker:
    """The model reads the query with each document and gives a score.

    Args:
        queue: computes the classifier's raw outputs, float32 [texts, 1].
        sigmoid: squeeze the score into 0 .. 1, which changes no order.
    """

    def __init__(
        self,
        queue: TextQueue,
        rules: TextRules,
        info: RerankerInfo,
        *,
        sigmoid: bool,
        clock: Clock,
        limits: EmbedLimits = EmbedLimits(),
    ) -> None:
        self._queue = queue
        self._rules = rules
        self._info = info
        self._sigmoid = sigmoid
        self._clock = clock
        self._limits = limits
        self._preparing = Preparation("tenuto-rerank", 2, limits.prepare_s)

    async def info(self) -> RerankerInfo:
        return self._info

    async def rerank(self, request: RerankRequest) -> Ranking:
        started = self._clock.now()
        _check(request, self._limits)
        async with within(request.timeout_s, self._limits):
            read = await self._preparing.run(
                lambda: read_pairs(request.query, request.documents, self._rules, truncate=request.truncate), TOO_SLOW
            )
            scores = (await self._queue.run([QueuedText(text, "first") for text in read.texts]))[:, 0]
        if self._sigmoid:
            scores = (0.5 * (1 + np.tanh(scores.astype(np.float64) / 2))).astype(np.float32)
        usage = EmbedUsage(
            num_tokens=read.num_tokens,
            num_computed=read.num_tokens,
            num_truncated=read.num_truncated,
            total_s=self._clock.now() - started,
        )
        return Ranking(documents=rank(scores, request.top_n), usage=usage)


class SimilarityReranker:
    """The cosine of the query's and each document's embedding. Prompts for queries and documents are the model's."""

    def __init__(self, embedder: EmbeddingClient, *, clock: Clock, limits: EmbedLimits = EmbedLimits()) -> None:
        self._embedder = embedder
        self._clock = clock
        self._limits = limits

    async def info(self) -> RerankerInfo:
        info = await self._embedder.info()
        return RerankerInfo(
            model=info.model,
            method="similarity",
            max_model_tokens=info.max_model_tokens,
            device=info.device,
            precision=info.precision,
        )

    async def rerank(self, request: RerankRequest) -> Ranking:
        started = self._clock.now()
        _check(request, self._limits)
        prompts = dict((await self._embedder.info()).prompts)
        shared = EmbedRequest(inputs=(), normalise=True, hints=request.hints)
        async with within(request.timeout_s, self._limits):
            query = await self._embedder.embed(
                msgspec.structs.replace(shared, inputs=(request.query,), prompt=_first(_QUERY_PROMPTS, prompts))
            )
            documents = await self._embedder.embed(
                msgspec.structs.replace(
                    shared,
                    inputs=request.documents,
                    prompt=_first(_DOCUMENT_PROMPTS, prompts),
                    truncate=request.truncate,
                )
            )
        # Row by row: a document's score has the same bits whatever others it is compared with.
        scores = np.array([np.dot(row, query.vectors[0]) for row in documents.vectors], dtype=np.float32)
        used = (query.usage, documents.usage)
        usage = EmbedUsage(
            num_tokens=sum(use.num_tokens for use in used),
            num_shared=sum(use.num_shared for use in used),
            num_computed=sum(use.num_computed for use in used),
            num_truncated=documents.usage.num_truncated,
            total_s=self._clock.now() - started,
        )
        return Ranking(documents=rank(scores, request.top_n), usage=usage)


def rank(scores: NDArray[np.float32], top_n: int | None) -> tuple[RankedDocument, ...]:
    """Best first; equal scores in the given order."""
    order = np.argsort(-scores, kind="stable")[:top_n]
    return tuple(RankedDocument(index=int(index), score=float(scores[index])) for index in order)


def _first(names: Sequence[str], prompts: dict[str, str]) -> str | None:
    return next((name for name in names if name in prompts), None)


def _check(request: RerankRequest, limits: EmbedLimits) -> None:
    check_count(len(request.documents), limits, "documents")
    check_texts([request.query, *request.documents], limits, "documents")
    if not request.query.strip():
        raise InvalidRequest("the query is empty", "query")
    if request.top_n is not None and request.top_n < 1:
        raise InvalidRequest(f"top_n is {request.top_n}; it must be at least 1", "top_n")
