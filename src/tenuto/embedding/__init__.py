"""Texts to vectors and rankings, over an encoder or over an engine; owns what stands around a text's tokens."""

from tenuto.embedding.embedder import EmbedLimits, LocalEmbedder
from tenuto.embedding.inputs import TextRules
from tenuto.embedding.poolers import EncoderPooler, EnginePooler
from tenuto.embedding.rerankers import CrossEncoderReranker, SimilarityReranker
from tenuto.embedding.text_queue import QueuedText, QueueLimits, TextQueue

__all__ = [
    "CrossEncoderReranker",
    "EmbedLimits",
    "EncoderPooler",
    "EnginePooler",
    "LocalEmbedder",
    "QueueLimits",
    "QueuedText",
    "SimilarityReranker",
    "TextQueue",
    "TextRules",
]
