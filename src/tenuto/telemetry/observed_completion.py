"""A `CompletionClient` that tells what passes through it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

from tenuto.errors import TenutoError
from tenuto.protocol.completion import CompletionClient, CompletionEvent, CompletionFinished, CompletionRequest
from tenuto.telemetry.observed_model import INTERNAL
from tenuto.telemetry.telemetry import Telemetry


class ObservedCompletion:
    """Implements `CompletionClient` over another one."""

    def __init__(self, completion: CompletionClient, telemetry: Telemetry) -> None:
        self._completion = completion
        self._telemetry = telemetry

    async def complete(self, request: CompletionRequest) -> AsyncGenerator[CompletionEvent, None]:
        telemetry = self._telemetry
        work = telemetry.start_work("text_completion", request.hints)
        events = cast("AsyncGenerator[CompletionEvent, None]", self._completion.complete(request))
        try:
            async with aclosing(events):
                async for event in events:
                    if work.first_token_s is None:
                        telemetry.first_token(work)
                    if isinstance(event, CompletionFinished):
                        telemetry.replied(work, event.usage, event.reason, None)
                    yield event
        except Exception as error:
            telemetry.failed(work, error.code if isinstance(error, TenutoError) else INTERNAL)
            raise
        finally:
            telemetry.end_work(work)
