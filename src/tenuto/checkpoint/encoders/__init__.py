"""Bidirectional encoders: models that turn a text into vectors or into a score, and generate nothing."""

from tenuto.checkpoint.encoders.config import EmbeddingLayout, EncoderConfig
from tenuto.checkpoint.encoders.open import EncoderCheckpoint, is_encoder, open_encoder, read_embedding_layout

__all__ = [
    "EmbeddingLayout",
    "EncoderCheckpoint",
    "EncoderConfig",
    "is_encoder",
    "open_encoder",
    "read_embedding_layout",
]
