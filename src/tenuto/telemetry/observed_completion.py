"""A `CompletionClient` that tells what passes through it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

from tenuto.protocol.completion import CompletionClient, CompletionEvent, CompletionFinished, CompletionRequest
from tenuto.telemetry.telemetry import Telemetry


class ObservedCompletion:
    """Implements `CompletionClient` over another one."""

    def __init__(self, completion: CompletionClient, telemetry: Telemetry) -> None:
        self._completion = completion
        self._telemetry = telemetry

    async def complete(self, request: CompletionRequest) -> AsyncGenerator[CompletionEvent, None]:
        telemetry = self._telemetry
        events = cast("AsyncGenerator[CompletionEvent, None]", self._completion.complete(request))
        with telemetry.work("text_completion", request.hints) as work:
            async with aclosing(events):
                async for event in events:
                    telemetry.token(work)
                    if isinstance(event, CompletionFinished):
                        telemetry.replied(work, event.usage, event.reason, None)
                    yield event
