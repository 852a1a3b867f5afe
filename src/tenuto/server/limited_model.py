"""Clients that refuse what is beyond the server's limits, whatever route it came by."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import msgspec

from tenuto.errors import InvalidRequest
from tenuto.ids import SessionId
from tenuto.protocol.chat import ChatRequest, ModelClient, ModelEvent, ModelInfo
from tenuto.protocol.completion import CompletionClient, CompletionEvent, CompletionRequest
from tenuto.protocol.hints import ExpectedWait
from tenuto.server.answers import closable
from tenuto.server.limits import ServerLimits


class LimitedModel:
    """Implements `ModelClient` over another one."""

    def __init__(self, model: ModelClient, limits: ServerLimits) -> None:
        self._model = model
        self._limits = limits

    async def info(self) -> ModelInfo:
        return await self._model.info()

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ModelEvent, None]:
        """Raises InvalidRequest for more messages, tools or tokens than are allowed, besides what the model raises."""
        events = closable(self._model.stream(self._checked(request)))
        async with aclosing(events):
            async for event in events:
                yield event

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
        max_tokens = limits.output_tokens(request.max_tokens)
        return msgspec.structs.replace(request, max_tokens=max_tokens) if max_tokens != request.max_tokens else request


class LimitedCompletion:
    """Implements `CompletionClient` over another one."""

    def __init__(self, completion: CompletionClient, limits: ServerLimits) -> None:
        self._completion = completion
        self._limits = limits

    def complete(self, request: CompletionRequest) -> AsyncIterator[CompletionEvent]:
        """Raises InvalidRequest for more tokens than are allowed, besides what the other one raises."""
        max_tokens = self._limits.output_tokens(request.max_tokens)
        return self._completion.complete(msgspec.structs.replace(request, max_tokens=max_tokens))
