"""The part of the composition root for embeddings over an engine, wherever that runs: it needs no torch."""

from __future__ import annotations

from typing import TypedDict

from tenuto.checkpoint.encoders import EmbeddingLayout, read_embedding_layout
from tenuto.clock import Clock
from tenuto.config import Config
from tenuto.embedding import EnginePooler, LocalEmbedder, TextRules
from tenuto.protocol.embedding import EmbedderInfo
from tenuto.protocol.engine import Pooling
from tenuto.text.frame import Frame, frame_of
from tenuto.text.tokenizer import Tokenizer
from tenuto.wiring_text import LoadedText, RunningModel


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
