"""Embedding and reranking as their callers see them: texts in, vectors or an order out."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from tenuto.ids import TokenId
from tenuto.protocol.engine import Pooling
from tenuto.protocol.hints import RunHints

RerankMethod: TypeAlias = Literal["cross-encoder", "similarity"]
"""`cross-encoder`: the model reads query and document together. `similarity`: the cosine of their embeddings."""


class EmbedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Texts to turn into vectors, each by itself; what is left None is as the model's makers want it."""

    inputs: tuple[str | tuple[TokenId, ...], ...]  # ids are taken as they are, without prompt or special tokens
    pooling: Pooling | None = None
    normalise: bool | None = None  # bring each vector to length 1
    dimensions: int | None = None  # keep so many of the first numbers (Matryoshka models), before normalising
    prompt: str | None = None  # the name of one of the model's prompts, written before each text
    instruction: str | None = None  # a prompt of your own, as text
    truncate: bool = False  # cut what is too long for the model; otherwise it is an error
    timeout_s: float | None = None
    hints: RunHints = RunHints()


class EmbedUsage(msgspec.Struct, frozen=True, kw_only=True):
    """num_tokens = num_shared + num_computed."""

    num_tokens: int = 0  # special ones and prompts included
    num_shared: int = 0  # KV found in the prefix cache (decoder models)
    num_computed: int = 0
    num_truncated: int = 0  # inputs that were cut
    total_s: float = 0.0


class Embeddings(msgspec.Struct, frozen=True, kw_only=True):
    """One vector an input, in their order."""

    vectors: NDArray[np.float32]  # [inputs, dimensions]
    usage: EmbedUsage


class EmbedderInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is served, and how its makers want it used."""

    model: str
    num_dimensions: int  # of a whole vector
    max_model_tokens: int  # longest input, special tokens and prompt included
    pooling: Pooling
    normalise: bool
    prompts: tuple[tuple[str, str], ...] = ()  # (name, text)
    default_prompt: str | None = None
    device: str = ""
    precision: str = ""


class EmbeddingClient(Protocol):
    """A model that turns texts into vectors: an encoder, or a decoder over an engine.

    Errors: InvalidRequest, ContextLengthError, NeverFits, QueueFull, Cancelled (out of time), StepFailed, EngineClosed.
    """

    async def info(self) -> EmbedderInfo: ...

    async def embed(self, request: EmbedRequest) -> Embeddings:
        """All vectors, or an error for the whole request. Cancelling the call gives up what was not computed yet."""
        ...


class RerankRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Documents to order by how well they answer a query."""

    query: str
    documents: tuple[str, ...]
    top_n: int | None = None  # only the best so many; None: all
    truncate: bool = False  # cut documents that are too long for the model; otherwise it is an error
    timeout_s: float | None = None
    hints: RunHints = RunHints()


class RankedDocument(msgspec.Struct, frozen=True, kw_only=True):
    index: int  # place among the request's documents
    score: float  # higher is better; comparable within one model only


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """Best first; equal scores in the request's order."""

    documents: tuple[RankedDocument, ...]
    usage: EmbedUsage


class RerankerInfo(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    method: RerankMethod
    max_model_tokens: int  # of query, document and special tokens together (cross-encoder), or of each (similarity)
    device: str = ""
    precision: str = ""


class RerankClient(Protocol):
    """Errors: as of `EmbeddingClient`."""

    async def info(self) -> RerankerInfo: ...

    async def rerank(self, request: RerankRequest) -> Ranking: ...
