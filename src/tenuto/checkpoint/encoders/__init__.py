"""Bidirectional encoders: models that turn a text into vectors or into a score, and generate nothing."""

from tenuto.checkpoint.encoders.config import EmbeddingLayout, EncoderConfig
from tenuto.checkpoint.encoders.layout import read_layout
from tenuto.checkpoint.encoders.open import EncoderCheckpoint, is_encoder, open_encoder

__all__ = ["EmbeddingLayout", "EncoderCheckpoint", "EncoderConfig", "is_encoder", "open_encoder", "read_layout"]
