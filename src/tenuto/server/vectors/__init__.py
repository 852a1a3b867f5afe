"""Embeddings and reranking over HTTP, in the forms that OpenAI's, Cohere's and Jina's clients speak."""

from tenuto.server.vectors.embeddings import EmbeddingBody, embedding_routes
from tenuto.server.vectors.rerank import RerankBody, rerank_routes

__all__ = ["EmbeddingBody", "RerankBody", "embedding_routes", "rerank_routes"]
