"""The clients as the routes see them: within the server's limits, and observed."""

from __future__ import annotations

from dataclasses import replace

from tenuto.protocol.chat import ModelClient
from tenuto.server.limited_model import LimitedCompletion, LimitedModel
from tenuto.server.limits import ServerLimits
from tenuto.server.service import OtherClients
from tenuto.telemetry import (
    ObservedCompletion,
    ObservedEmbedder,
    ObservedModel,
    ObservedReranker,
    ObservedSessions,
    Telemetry,
)


def guarded_model(model: ModelClient, limits: ServerLimits, telemetry: Telemetry) -> ModelClient:
    return LimitedModel(ObservedModel(model, telemetry), limits)


def guarded_others(others: OtherClients, limits: ServerLimits, telemetry: Telemetry) -> OtherClients:
    """Those that there are."""
    completion, embedder, reranker, sessions = others.completion, others.embedder, others.reranker, others.sessions
    return replace(
        others,
        completion=None if completion is None else LimitedCompletion(ObservedCompletion(completion, telemetry), limits),
        embedder=None if embedder is None else ObservedEmbedder(embedder, telemetry),
        reranker=None if reranker is None else ObservedReranker(reranker, telemetry),
        sessions=None if sessions is None else ObservedSessions(sessions, telemetry),
    )
