"""The decoder over a ragged batch, and how its weights are loaded."""

from tenuto.model.batch import RaggedBatch
from tenuto.model.decoder import Decoder
from tenuto.model.encoder import Encoder
from tenuto.model.load import load_model
from tenuto.model.load_encoder import load_encoder
from tenuto.model.packed_cache import KeptWeights, PackedCache, PackedCacheLimits

__all__ = [
    "Decoder",
    "Encoder",
    "KeptWeights",
    "PackedCache",
    "PackedCacheLimits",
    "RaggedBatch",
    "load_encoder",
    "load_model",
]
