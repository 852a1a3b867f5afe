"""The part of the composition root for embeddings beside a model that generates, wherever its engine runs: it needs no
torch, unless another model is to embed or rank."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TypedDict

import structlog

from tenuto.checkpoint.encoders import EmbeddingLayout, read_embedding_layout
from tenuto.clock import Clock
from tenuto.config import Config
from tenuto.embedding import EnginePooler, LocalEmbedder, SimilarityReranker, TextRules
from tenuto.errors import UnsupportedModel
from tenuto.protocol.embedding import EmbedderInfo, EmbeddingClient, RerankClient
from tenuto.protocol.engine import Pooling
from tenuto.text.frame import Frame, frame_of
from tenuto.text.tokenizer import Tokenizer
from tenuto.wiring_text import LoadedText, RunningModel

_log = structlog.get_logger("tenuto.wiring")


@dataclass(frozen=True)
class VectorClients:
    """Who embeds and who ranks, beside a model that generates; None: its files ask for what we do not do."""

    embedder: EmbeddingClient | None
    reranker: RerankClient | None


@asynccontextmanager
async def vector_clients(config: Config, started: RunningModel, clock: Clock) -> AsyncIterator[VectorClients]:
    """The models that the settings name, loaded in this process; where none is named, the one that generates.

    Raises what `open_embedder` and `open_reranker` raise.
    """
    async with AsyncExitStack() as stack:
        embedder: EmbeddingClient | None = None
        if config.embedding_model is not None:
            from tenuto.wiring_embedding import open_embedder  # brings in torch, which no other part here needs

            embedder = await stack.enter_async_context(open_embedder(beside(config, config.embedding_model)))
        else:
            try:
                embedder = await decoder_embedder(started.loaded, started, config, clock)
            except UnsupportedModel as error:
                _log.warning("embeddings_not_served", reason=str(error))
        reranker: RerankClient | None = None if embedder is None else SimilarityReranker(embedder, clock=clock)
        if config.rerank_model is not None:
            from tenuto.wiring_embedding import open_reranker

            reranker = await stack.enter_async_context(open_reranker(beside(config, config.rerank_model)))
        yield VectorClients(embedder, reranker)


def beside(config: Config, model: str) -> Config:
    """The settings of another model; how long a session may be is no business of it."""
    return config.model_copy(update={"model": model, "max_model_tokens": None})


async def decoder_embedder(loaded: LoadedText, started: RunningModel, config: Config, clock: Clock) -> LocalEmbedder:
    """Embeddings by a decoder, in the steps of the engine that also generates.

    Raises:
        UnsupportedModel: the files ask for a pooling, or for special tokens, in a way that we do not do.
    """
    layout = read_embedding_layout(loaded.path)
    tokenizer = loaded.text.tokenizer
    engine = await started.engine.info()
    most = min(engine.max_model_tokens, engine.num_blocks * engine.block_size)
    advised = most if config.max_model_tokens is not None else min(most, layout.max_model_tokens or most)
    # A decoder's states know nothing of token types.
    rules = text_rules(tokenizer, frame_of(loaded.tokenizer_files, tokenizer).with_types(1), layout, advised)
    info = EmbedderInfo(
        model=loaded.name,
        num_dimensions=engine.hidden_size,
        device=engine.device,
        precision=engine.precision,
        **makers_wishes(layout, rules, "last"),
    )
    return LocalEmbedder(EnginePooler(started.engine), rules, info, clock=clock)


def text_rules(tokenizer: Tokenizer, frame: Frame, layout: EmbeddingLayout, max_model_tokens: int) -> TextRules:
    """How texts are written for a model, so many of whose tokens they may take."""
    return TextRules(
        tokenizer=tokenizer,
        frame=frame,
        max_model_tokens=max_model_tokens,
        lowercase=layout.lowercase,
        prompts=dict(layout.prompts),
        default_prompt=layout.default_prompt,
    )


class MakersWishes(TypedDict):
    """Of an `EmbedderInfo`, what a model's makers decide."""

    max_model_tokens: int
    pooling: Pooling
    normalise: bool
    prompts: tuple[tuple[str, str], ...]
    default_prompt: str | None


def makers_wishes(layout: EmbeddingLayout, rules: TextRules, pooling: Pooling) -> MakersWishes:
    """What the makers want; where they do not say, vectors of length 1, pooled as is usual for the kind of model."""
    return MakersWishes(
        max_model_tokens=rules.max_model_tokens,
        pooling=layout.pooling or pooling,
        normalise=True if layout.normalise is None else layout.normalise,
        prompts=layout.prompts,
        default_prompt=layout.default_prompt,
    )
