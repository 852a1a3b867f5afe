"""A `ModelClient` that tells what passes through it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

from tenuto.ids import SessionId
from tenuto.protocol.chat import ChatRequest, ModelClient, ModelEvent, ModelInfo, ReplyFinished
from tenuto.protocol.hints import ExpectedWait
from tenuto.telemetry.telemetry import Telemetry


class ObservedModel:
    """Implements `ModelClient` over another one; every call is told to the telemetry, and nothing is changed."""

    def __init__(self, model: ModelClient, telemetry: Telemetry) -> None:
        self._model = model
        self._telemetry = telemetry

    async def info(self) -> ModelInfo:
        return await self._model.info()

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ModelEvent, None]:
        telemetry = self._telemetry
        events = cast("AsyncGenerator[ModelEvent, None]", self._model.stream(request))
        with telemetry.work("chat", request.hints, request.session) as work:
            telemetry.asked(request)
            async with aclosing(events):
                async for event in events:
                    telemetry.token(work)
                    if isinstance(event, ReplyFinished):
                        telemetry.replied(work, event.usage, event.reason, event.message)
                    yield event

    async def suspend(self, session: SessionId, wait: ExpectedWait) -> None:
        await self._model.suspend(session, wait)

    async def close(self, session: SessionId) -> None:
        await self._model.close(session)
