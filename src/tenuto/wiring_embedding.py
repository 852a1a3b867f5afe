"""The composition root of embedding and reranking: settings in, a client out, over an encoder or over an engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import numpy as np
from numpy.typing import NDArray

from tenuto.checkpoint.encoders import EmbeddingLayout, is_encoder, open_encoder
from tenuto.clock import Clock, RealClock
from tenuto.config import Config
from tenuto.device import choose_device
from tenuto.embedding import (
    CrossEncoderReranker,
    EncoderPooler,
    LocalEmbedder,
    QueuedText,
    QueueLimits,
    SimilarityReranker,
    TextQueue,
    TextRules,
)
from tenuto.errors import ConfigError, UnsupportedModel
from tenuto.field import available_bytes, require_encoder_room
from tenuto.model import Encoder, load_encoder
from tenuto.protocol.embedding import EmbedderInfo, EmbeddingClient, RerankClient, RerankerInfo
from tenuto.text.frame import frame_of
from tenuto.text.tokenizer import Tokenizer
from tenuto.wiring import load, running
from tenuto.wiring_packed import packed_cache
from tenuto.wiring_text import find_model
from tenuto.wiring_vectors import decoder_embedder, makers_wishes, text_rules


@dataclass(frozen=True)
class LoadedEncoder:
    """An encoder in memory, how its texts are written and how its states are read."""

    name: str
    encoder: Encoder
    rules: TextRules
    layout: EmbeddingLayout


def load_text_encoder(path: Path, config: Config) -> LoadedEncoder:
    """Read an encoder's files. Raises ModelFileError, UnsupportedModel, NeverFits, ConfigError."""
    import torch

    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    checkpoint = open_encoder(path)
    sizes, layout = checkpoint.config, checkpoint.layout
    most = sizes.max_model_tokens
    if config.max_model_tokens is not None and config.max_model_tokens > most:
        raise ConfigError(f"setting max_model_tokens: {config.max_model_tokens} exceeds the model's {most}")
    tokenizer = Tokenizer.from_files(checkpoint.tokenizer, sizes.vocab_size)
    require_encoder_room(checkpoint, config.precision, available_bytes() if config.check_memory else None)
    frame = frame_of(checkpoint.tokenizer, tokenizer).with_types(sizes.num_token_types)
    advised = config.max_model_tokens or min(most, layout.max_model_tokens or most)
    return LoadedEncoder(
        name=checkpoint.name,
        encoder=load_encoder(
            checkpoint,
            choose_device(config.precision, config.num_threads, config.kv_type),
            packed_cache(config),
        ),
        rules=text_rules(tokenizer, frame, layout, advised),
        layout=layout,
    )


@asynccontextmanager
async def encoder_embedder(loaded: LoadedEncoder, config: Config, clock: Clock) -> AsyncIterator[LocalEmbedder]:
    """Embeddings by an encoder. Raises ConfigError for a cross-encoder, which gives scores of pairs."""
    encoder, rules = loaded.encoder, loaded.rules
    if encoder.head is not None:
        raise ConfigError(
            f"{loaded.name} is a cross-encoder: it scores pairs of texts (`tenuto rerank`), no single ones"
        )

    def compute(texts: Sequence[QueuedText]) -> NDArray[np.float32]:
        ids, types = [one.text.ids for one in texts], [one.text.types for one in texts]
        return encoder.pooled(ids, types, [one.pooling for one in texts])

    info = EmbedderInfo(
        model=loaded.name,
        num_dimensions=encoder.config.hidden_size,
        device=encoder.device.name,
        precision=encoder.device.precision,
        **makers_wishes(loaded.layout, rules, "mean"),
    )
    async with TextQueue(compute, _queue_limits(config)) as queue:
        yield LocalEmbedder(EncoderPooler(queue), rules, info, clock=clock)


@asynccontextmanager
async def cross_encoder_reranker(
    loaded: LoadedEncoder, config: Config, clock: Clock
) -> AsyncIterator[CrossEncoderReranker]:
    """Raises UnsupportedModel for a classifier of several classes, or a model that reads no pairs."""
    encoder, rules = loaded.encoder, loaded.rules
    assert encoder.head is not None, "no classifier"
    if encoder.config.num_labels != 1:
        raise UnsupportedModel(
            f"{loaded.name}: its classifier has {encoder.config.num_labels} classes; a reranker has one"
        )
    if rules.frame.pair is None:
        raise UnsupportedModel(f"{loaded.name}: its tokenizer knows no pairs of texts, so it is no reranker")

    def compute(texts: Sequence[QueuedText]) -> NDArray[np.float32]:
        return encoder.scores([one.text.ids for one in texts], [one.text.types for one in texts])

    info = RerankerInfo(
        model=loaded.name,
        method="cross-encoder",
        max_model_tokens=rules.max_model_tokens,
        device=encoder.device.name,
        precision=encoder.device.precision,
    )
    async with TextQueue(compute, _queue_limits(config)) as queue:
        yield CrossEncoderReranker(queue, rules, info, sigmoid=loaded.layout.sigmoid, clock=clock)


@asynccontextmanager
async def open_embedder(config: Config | None = None, **settings: object) -> AsyncIterator[EmbeddingClient]:
    """Load a model, an encoder or a decoder, and yield its embedding client.

    Args:
        config: all settings; or give single ones by name, e.g. `open_embedder(model="path", precision="bf16")`.

    Raises:
        ConfigError: the model is a cross-encoder.
    """
    config = config or Config.load(**settings)
    clock = RealClock()
    path = await anyio.to_thread.run_sync(find_model, config)
    if is_encoder(path):
        encoder = await anyio.to_thread.run_sync(load_text_encoder, path, config)
        async with encoder_embedder(encoder, config, clock) as embedder:
            yield embedder
    else:
        decoder = await anyio.to_thread.run_sync(load, config, clock)
        async with running(decoder, config, clock=clock) as started:
            yield await decoder_embedder(decoder, started, config, clock)


@asynccontextmanager
async def open_reranker(config: Config | None = None, **settings: object) -> AsyncIterator[RerankClient]:
    """The same for reranking: by a cross-encoder's score, or with any other model by the similarity of embeddings."""
    config = config or Config.load(**settings)
    clock = RealClock()
    path = await anyio.to_thread.run_sync(find_model, config)
    encoder = await anyio.to_thread.run_sync(load_text_encoder, path, config) if is_encoder(path) else None
    if encoder is not None and encoder.encoder.head is not None:
        async with cross_encoder_reranker(encoder, config, clock) as reranker:
            yield reranker
    elif encoder is not None:
        async with encoder_embedder(encoder, config, clock) as embedder:
            yield SimilarityReranker(embedder, clock=clock)
    else:
        async with open_embedder(config) as decoder:
            yield SimilarityReranker(decoder, clock=clock)


def _queue_limits(config: Config) -> QueueLimits:
    return QueueLimits(max_batch_tokens=max(config.max_batch_tokens, 4096))
