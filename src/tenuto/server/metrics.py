"""GET /metrics and /ready."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Response

from tenuto.errors import EngineClosed
from tenuto.protocol.counters import EngineCounters
from tenuto.server.admission import Admission
from tenuto.server.replies import ERROR_RESPONSES, Ready
from tenuto.server.service import Service
from tenuto.telemetry import ServerMetrics
from tenuto.telemetry.metrics import CONTENT_TYPE

_ANSWER_DEADLINE_S = 5.0  # for the engine to say how it is


def operation_routes(service: Service, metrics: ServerMetrics, admission: Admission) -> APIRouter:
    """What the people and programs ask that run the server."""
    router = APIRouter(tags=["operations"])

    async def counters() -> EngineCounters | None:
        if service.others.engine is None:
            return None
        async with asyncio.timeout(_ANSWER_DEADLINE_S):
            return await service.others.engine.counters()

    @router.get(
        "/metrics",
        summary="Metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def read_metrics() -> Response:
        """In Prometheus' text format; docs/telemetry.md describes each. Needs a key if there are any."""
        try:
            counted = await counters()
        except (EngineClosed, TimeoutError):
            counted = None
        return Response(metrics.exposition(counted), headers={"Content-Type": CONTENT_TYPE})

    @router.get("/ready", summary="Does the server take requests?", responses={503: ERROR_RESPONSES[503]})
    async def ready() -> Ready:
        """Answers 200 if the model is loaded, its engine runs and the server is not stopping; otherwise 503."""
        if admission.is_draining:
            raise EngineClosed("the server is stopping")
        try:
            async with asyncio.timeout(_ANSWER_DEADLINE_S):
                info = await service.model.info()
            await counters()
        except TimeoutError as error:
            raise EngineClosed(f"the engine did not answer within {_ANSWER_DEADLINE_S:g} s") from error
        return Ready(model=info.name)

    return router
