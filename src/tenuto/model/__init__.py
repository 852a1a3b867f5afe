"""The decoder over a ragged batch, and how its weights are loaded."""

from tenuto.model.batch import RaggedBatch
from tenuto.model.decoder import Decoder
from tenuto.model.load import load_model

__all__ = ["Decoder", "RaggedBatch", "load_model"]
