"""Model events → the chunks of a streamed chat completion, as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

import msgspec
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from tenuto.protocol.chat import (
    ModelEvent,
    ReplyFinished,
    TextDelta,
    ToolCallDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from tenuto.server.disconnect import ClientGone, until_disconnect
from tenuto.server.errors import STOPPING, log_disconnect, log_if_unexpected, status_and_body
from tenuto.server.limits import ServerLimits
from tenuto.server.replies import usage_reply

DONE = b"data: [DONE]\n\n"


def sse_event(value: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


@dataclass(frozen=True)
class ChunkFormat:
    """What all chunks of one answer have in common."""

    id: str
    created: int
    model: str
    include_usage: bool

    def _chunk(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> bytes:
        value = {
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }
        if self.include_usage:
            value["usage"] = usage
        return sse_event(value)

    def _delta(self, delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        return self._chunk([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}])

    def opening(self) -> bytes:
        """The first chunk: it has the role."""
        return self._delta({"role": "assistant", "content": ""})

    def chunks(self, event: ModelEvent) -> list[bytes]:
        """An event's chunks: one, but none where a call ends, and one more for the usage if asked."""
        match event:
            case TextDelta(text=text):
                return [self._delta({"content": text})]
            case ToolCallStarted(index=index, id=call_id, name=name):
                function = {"name": name, "arguments": ""}
                call = {"index": index, "id": call_id, "type": "function", "function": function}
                return [self._delta({"tool_calls": [call]})]
            case ToolCallDelta(index=index, arguments=piece):
                return [self._delta({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})]
            case ToolCallFinished():
                return []
            case ReplyFinished(reason=reason, usage=usage):
                last = self._delta({}, reason)
                return [last, self._chunk([], usage_reply(usage))] if self.include_usage else [last]


async def chunk_stream(
    events: AsyncIterator[ModelEvent], form: ChunkFormat, request_id: str
) -> AsyncGenerator[bytes, None]:
    """All of an answer's events, closed by exactly one `[DONE]`.

    An error before the first event is raised, while the status can still say so; a later one becomes an error event.
    """
    opened = False
    try:
        async with aclosing(closable(events)):
            finished = False
            async for event in events:
                if not opened:
                    opened = True
                    yield form.opening()
                for chunk in form.chunks(event):
                    yield chunk
                finished = isinstance(event, ReplyFinished)
            assert finished, "a model's stream ends with ReplyFinished"
    except Exception as error:
        if not opened:
            raise
        log_if_unexpected(error, request_id)
        yield sse_event(status_and_body(error)[1])
    yield DONE


def closable(events: AsyncIterator[ModelEvent]) -> AsyncGenerator[ModelEvent, None]:
    """The protocol promises an iterator whose closing cancels; only its type says less."""
    return cast("AsyncGenerator[ModelEvent, None]", events)


class EventStream(StreamingResponse):
    """Sends chunks as they come, and closes their source at once when the client goes.

    The status is sent with the first chunk, so what is raised before it is answered like any other error.
    """

    def __init__(self, chunks: AsyncGenerator[bytes, None], request_id: str, limits: ServerLimits) -> None:
        # X-Accel-Buffering: a proxy in between must not hold the pieces back.
        super().__init__(
            chunks, media_type="text/event-stream", headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        )
        self._chunks = chunks
        self._request_id = request_id
        self._limits = limits
        self._opened = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await until_disconnect(receive, self._send(send), self._limits.cancel_deadline_s)
        except ClientGone:
            log_disconnect(self._request_id)
        except asyncio.CancelledError:
            if not self._opened:
                raise
            # The server stops and will not wait any longer: even this stream ends as streams end.
            last = sse_event(status_and_body(STOPPING)[1]) + DONE
            await self._put(send, {"type": "http.response.body", "body": last, "more_body": False})

    async def _send(self, send: Send) -> None:
        async with aclosing(self._chunks) as chunks:
            first = await anext(chunks)
            self._opened = True
            await self._put(send, {"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._put(send, {"type": "http.response.body", "body": first, "more_body": True})
            async for chunk in chunks:
                await self._put(send, {"type": "http.response.body", "body": chunk, "more_body": True})
        await self._put(send, {"type": "http.response.body", "body": b"", "more_body": False})

    async def _put(self, send: Send, message: Message) -> None:
        try:
            async with asyncio.timeout(self._limits.send_deadline_s):
                await send(message)
        except TimeoutError as error:
            raise ClientGone from error
