"""Reads model files: GGUF, and Hugging Face directories of safetensors. No torch, no pickle."""

from tenuto.checkpoint.config import (
    ExpertsConfig,
    GGUFTokenizer,
    LayerConfig,
    ModelConfig,
    SentencePieceFile,
    TokenizerFiles,
)
from tenuto.checkpoint.find import find_model
from tenuto.checkpoint.open import Checkpoint, open_checkpoint
from tenuto.checkpoint.rope import RopeConfig

__all__ = [
    "Checkpoint",
    "ExpertsConfig",
    "GGUFTokenizer",
    "LayerConfig",
    "ModelConfig",
    "RopeConfig",
    "SentencePieceFile",
    "TokenizerFiles",
    "find_model",
    "open_checkpoint",
]
