"""Embedding and reranking clients that tell what passes through them."""

from __future__ import annotations

from tenuto.protocol.embedding import (
    EmbedderInfo,
    EmbeddingClient,
    Embeddings,
    EmbedRequest,
    EmbedUsage,
    Ranking,
    RerankClient,
    RerankerInfo,
    RerankRequest,
)
from tenuto.telemetry.record import Work
from tenuto.telemetry.telemetry import Telemetry


class ObservedEmbedder:
    """Implements `EmbeddingClient` over another one."""

    def __init__(self, embedder: EmbeddingClient, telemetry: Telemetry) -> None:
        self._embedder = embedder
        self._telemetry = telemetry

    async def info(self) -> EmbedderInfo:
        return await self._embedder.info()

    async def embed(self, request: EmbedRequest) -> Embeddings:
        with self._telemetry.work("embeddings", request.hints) as work:
            embeddings = await self._embedder.embed(request)
            _add(work, embeddings.usage)
            return embeddings


class ObservedReranker:
    """Implements `RerankClient` over another one."""

    def __init__(self, reranker: RerankClient, telemetry: Telemetry) -> None:
        self._reranker = reranker
        self._telemetry = telemetry

    async def info(self) -> RerankerInfo:
        return await self._reranker.info()

    async def rerank(self, request: RerankRequest) -> Ranking:
        with self._telemetry.work("rerank", request.hints) as work:
            ranking = await self._reranker.rerank(request)
            _add(work, ranking.usage)
            return ranking


def _add(work: Work, usage: EmbedUsage) -> None:
    work.num_prompt += usage.num_tokens
    work.num_shared += usage.num_shared
    work.num_computed += usage.num_computed
    work.reasons.append("stop")
