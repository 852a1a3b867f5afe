"""`EmbeddingClient` in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tenuto.clock import Clock
from tenuto.embedding.inputs import TextRules, read_inputs
from tenuto.embedding.poolers import Pooler
from tenuto.errors import Cancelled, InvalidRequest
from tenuto.offload import Preparation
from tenuto.protocol.embedding import EmbedderInfo, Embeddings, EmbedRequest, EmbedUsage

TOO_SLOW = "the texts took longer than {limit} to encode; send fewer or shorter texts"
_LEAST_NORM = 1e-12  # a vector of zeros stays one


@dataclass(frozen=True, kw_only=True)
class EmbedLimits:
    """Bounds of one request."""

    max_inputs: int = 2048
    max_input_chars: int = 1_000_000  # of one text
    max_chars: int = 10_000_000  # of all of them
    prepare_s: float = 30.0  # longest wait for the texts to be encoded
    timeout_s: float = 600.0  # longest wait for everything; a request may ask for less


class LocalEmbedder:
    """Reads the texts beside the event loop, has them computed and pooled, and brings the vectors into form."""

    def __init__(
        self,
        pooler: Pooler,
        rules: TextRules,
        info: EmbedderInfo,
        *,
        clock: Clock,
        limits: EmbedLimits = EmbedLimits(),
    ) -> None:
        self._pooler = pooler
        self._rules = rules
        self._info = info
        self._clock = clock
        self._limits = limits
        self._preparing = Preparation("tenuto-embed", 2, limits.prepare_s)

    async def info(self) -> EmbedderInfo:
        return self._info

    async def embed(self, request: EmbedRequest) -> Embeddings:
        started = self._clock.now()
        check_texts([text for text in request.inputs if isinstance(text, str)], self._limits, "inputs")
        check_count(len(request.inputs), self._limits, "inputs")
        self._check_dimensions(request.dimensions)
        pooling = self._info.pooling if request.pooling is None else request.pooling
        normalise = self._info.normalise if request.normalise is None else request.normalise
        async with within(request.timeout_s, self._limits):
            read = await self._preparing.run(lambda: read_inputs(request, self._rules), TOO_SLOW)
            pooled = await self._pooler.pool(read.texts, pooling, request.hints)
        usage = EmbedUsage(
            num_tokens=read.num_tokens,
            num_shared=pooled.num_shared,
            num_computed=read.num_tokens - pooled.num_shared,
            num_truncated=read.num_truncated,
            total_s=self._clock.now() - started,
        )
        return Embeddings(vectors=in_form(pooled.vectors, request.dimensions, normalise), usage=usage)

    def _check_dimensions(self, dimensions: int | None) -> None:
        most = self._info.num_dimensions
        if dimensions is not None and not 1 <= dimensions <= most:
            raise InvalidRequest(f"dimensions is {dimensions}; it must be between 1 and {most}", "dimensions")


def in_form(vectors: NDArray[np.float32], dimensions: int | None, normalise: bool) -> NDArray[np.float32]:
    """Cut, then brought to length 1: each row by itself."""
    vectors = vectors[:, :dimensions]
    if normalise:
        norms = np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=1, keepdims=True))
        vectors = (vectors / np.maximum(norms, _LEAST_NORM)).astype(np.float32)
    return np.ascontiguousarray(vectors)


def check_count(count: int, limits: EmbedLimits, param: str) -> None:
    if not 1 <= count <= limits.max_inputs:
        raise InvalidRequest(f"{count} {param} were given; 1 to {limits.max_inputs} are accepted", param)


def check_texts(texts: list[str], limits: EmbedLimits, param: str) -> None:
    longest = max(map(len, texts), default=0)
    if longest > limits.max_input_chars or sum(map(len, texts)) > limits.max_chars:
        raise InvalidRequest(
            f"{param}: a text may have {limits.max_input_chars} characters, all together {limits.max_chars}", param
        )


@asynccontextmanager
async def within(timeout_s: float | None, limits: EmbedLimits) -> AsyncIterator[None]:
    """Raises Cancelled if the block takes longer, and InvalidRequest for a time that is none."""
    if timeout_s is not None and not timeout_s > 0:
        raise InvalidRequest(f"timeout_s is {timeout_s}; it must be positive", "timeout_s")
    limit = limits.timeout_s if timeout_s is None else min(timeout_s, limits.timeout_s)
    try:
        async with asyncio.timeout(limit):
            yield
    except TimeoutError as error:
        raise Cancelled(f"the request was given up after {limit:g} s; send fewer or shorter texts") from error
