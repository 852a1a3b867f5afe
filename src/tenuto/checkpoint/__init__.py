"""Reads model files: GGUF, and Hugging Face directories of safetensors. No torch, no pickle."""

from tenuto.checkpoint.config import GGUFTokenizer, ModelConfig, TokenizerFiles
from tenuto.checkpoint.find import find_model
from tenuto.checkpoint.open import Checkpoint, open_checkpoint

__all__ = ["Checkpoint", "GGUFTokenizer", "ModelConfig", "TokenizerFiles", "find_model", "open_checkpoint"]
