"""A `ModelClient` that tells what passes through it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

from tenuto.errors import TenutoError
from tenuto.ids import SessionId
from tenuto.protocol.chat import ChatRequest, ModelClient, ModelEvent, ModelInfo, ReplyFinished
from tenuto.protocol.hints import ExpectedWait
from tenuto.telemetry.telemetry import Telemetry

INTERNAL = "internal_error"  # the kind of an error that is none of ours


class ObservedModel:
    """Implements `ModelClient` over another one; every call is told to the telemetry, and nothing is changed."""

    def __init__(self, model: ModelClient, telemetry: Telemetry) -> None:
        self._model = model
        self._telemetry = telemetry

    async def info(self) -> ModelInfo:
        return await self._model.info()

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ModelEvent, None]:
        telemetry = self._telemetry
        work = telemetry.start_work("chat", request.hints, request.session)
        telemetry.asked(request)
        events = cast("AsyncGenerator[ModelEvent, None]", self._model.stream(request))
        try:
            async with aclosing(events):
                async for event in events:
                    if work.first_token_s is None:
                        telemetry.first_token(work)
                    if isinstance(event, ReplyFinished):
                        telemetry.replied(work, event.usage, event.reason, event.message)
                    yield event
        except Exception as error:
            telemetry.failed(work, error.code if isinstance(error, TenutoError) else INTERNAL)
            raise
        finally:
            telemetry.end_work(work)

    async def suspend(self, session: SessionId, wait: ExpectedWait) -> None:
        await self._model.suspend(session, wait)

    async def close(self, session: SessionId) -> None:
        await self._model.close(session)
