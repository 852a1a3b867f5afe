"""A `ModelClient` that refuses what is beyond the server's limits, whatever route it came by."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from tenuto.errors import InvalidRequest, QueueFull
from tenuto.ids import SessionId
from tenuto.protocol.chat import ChatRequest, ModelClient, ModelEvent, ModelInfo
from tenuto.protocol.hints import ExpectedWait
from tenuto.server.admission import Admission
from tenuto.server.answers import closable
from tenuto.server.limits import ServerLimits


class LimitedModel:
    """Implements `ModelClient` over another one, whose full queue it turns into a time to come back."""

    def __init__(self, model: ModelClient, limits: ServerLimits, admission: Admission) -> None:
        self._model = model
        self._limits = limits
        self._admission = admission

    async def info(self) -> ModelInfo:
        return await self._model.info()

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ModelEvent, None]:
        """Raises InvalidRequest for more messages, tools or tokens than are allowed, besides what the model raises."""
        events = closable(self._model.stream(self._checked(request)))
        try:
            async with aclosing(events):
                async for event in events:
                    yield event
        except QueueFull as error:
            if error.retry_after_s is None:
                error.retry_after_s = self._admission.retry_after_s()
            raise

    async def suspend(self, session: SessionId, wait: ExpectedWait) -> None:
        await self._model.suspend(session, wait)

    async def close(self, session: SessionId) -> None:
        await self._model.close(session)

    def _checked(self, request: ChatRequest) -> ChatRequest:
        limits = self._limits
        if len(request.messages) > limits.max_messages:
            raise InvalidRequest(f"messages: this server takes {limits.max_messages} at most", "messages")
        if len(request.tools) > limits.max_tools:
            raise InvalidRequest(f"tools: this server takes {limits.max_tools} at most", "tools")
        if limits.max_output_tokens is None:
            return request
        if request.max_tokens is None:
            return msgspec.structs.replace(request, max_tokens=limits.max_output_tokens)
        if request.max_tokens > limits.max_output_tokens:
            raise InvalidRequest(f"max_tokens: this server generates {limits.max_output_tokens} at most", "max_tokens")
        return request
