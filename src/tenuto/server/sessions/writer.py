"""Session events → the events of a stream, and the whole answer they add up to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from tenuto.protocol.chat import TokenScore
from tenuto.protocol.sessions import SessionDelta, SessionEvent, SessionFinished
from tenuto.server.answers import closable
from tenuto.server.errors import status_and_body
from tenuto.server.replies import logprobs_reply
from tenuto.server.sessions.replies import usage_of
from tenuto.server.sse import DONE, CommonFields, sse_event


class GenerationWriter:
    """One answer as a stream.

    Args:
        own: what all of its events have in common.
    """

    def __init__(self, own: dict[str, Any]) -> None:
        self._common = CommonFields(own | {"object": "session.generation.chunk"})
        self.is_finished = False

    def pieces(self, event: SessionEvent) -> list[bytes]:
        if isinstance(event, SessionFinished):
            self.is_finished = True
            return [self._common.event({"token_ids": [], "text": ""} | _end(event))]
        news: dict[str, Any] = {"token_ids": event.ids, "text": event.text, "finish_reason": None}
        if event.scores:
            news["logprobs"] = logprobs_reply(event.scores)
        return [self._common.event(news)]

    def end(self) -> bytes:
        return DONE

    def failure(self, error: Exception) -> bytes:
        return sse_event(status_and_body(error)[1]) + DONE


async def whole_generation(events: AsyncIterator[SessionEvent], own: dict[str, Any]) -> dict[str, Any]:
    """The wire form of `SessionGeneration`."""
    ids: list[int] = []
    texts: list[str] = []
    scores: list[TokenScore] = []
    finished: SessionFinished | None = None
    async with aclosing(closable(events)):
        async for event in events:
            match event:
                case SessionDelta():
                    ids += event.ids
                    texts.append(event.text)
                    scores += event.scores
                case SessionFinished():
                    finished = event
    assert finished is not None, "a session's stream ends with its last event"
    answer = own | {"object": "session.generation", "token_ids": ids, "text": "".join(texts)} | _end(finished)
    return answer | {"logprobs": logprobs_reply(scores)}


def _end(event: SessionFinished) -> dict[str, Any]:
    return {
        "input_ids": list(event.input_ids),
        "finish_reason": event.reason,
        "stop_reason": event.stop,
        "usage": usage_of(event.usage),
    }
