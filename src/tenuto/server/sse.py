"""Model events → the chunks of a streamed chat completion, as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

import msgspec
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from tenuto.protocol.chat import (
    ChatUsage,
    ModelEvent,
    ReasoningDelta,
    ReplyFinished,
    TextDelta,
    TokenScore,
    TokensScored,
    ToolCallDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from tenuto.server.disconnect import ClientGone, until_disconnect
from tenuto.server.errors import STOPPING, log_disconnect, log_if_unexpected, status_and_body
from tenuto.server.limits import ServerLimits
from tenuto.server.replies import logprobs_reply, usage_reply

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

    def choice(
        self, index: int, delta: dict[str, Any], finish_reason: str | None, scores: Sequence[TokenScore]
    ) -> bytes:
        """News of one choice."""
        logprobs = logprobs_reply(scores)
        return self._chunk([{"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}])

    def usage(self, usages: Sequence[ChatUsage]) -> bytes:
        """The chunk without choices."""
        return self._chunk([], usage_reply(usages))


class ChunkWriter:
    """Events of one answer to its chunks: for each choice one with the role, its news, one with the finish reason; and
    after them all one with the usage, if asked. Scores go with the next chunk of their choice."""

    def __init__(self, form: ChunkFormat, num_choices: int) -> None:
        self._form = form
        self._num_choices = num_choices
        self._opened: set[int] = set()
        self._scores: dict[int, list[TokenScore]] = {}
        self._usages: list[ChatUsage] = []

    @property
    def is_finished(self) -> bool:
        return len(self._usages) == self._num_choices

    def chunks(self, event: ModelEvent) -> list[bytes]:
        """An event's chunks, none to three."""
        chunks = []
        if event.choice not in self._opened:
            self._opened.add(event.choice)
            chunks.append(self._form.choice(event.choice, {"role": "assistant", "content": ""}, None, ()))
        if isinstance(event, TokensScored):
            self._scores.setdefault(event.choice, []).extend(event.tokens)
            return chunks
        if isinstance(event, ToolCallFinished):
            return chunks
        finish_reason = event.reason if isinstance(event, ReplyFinished) else None
        scores = self._scores.pop(event.choice, ())
        chunks.append(self._form.choice(event.choice, _delta(event), finish_reason, scores))
        if isinstance(event, ReplyFinished):
            self._usages.append(event.usage)
            if self.is_finished and self._form.include_usage:
                chunks.append(self._form.usage(self._usages))
        return chunks


def _delta(event: ReasoningDelta | TextDelta | ToolCallStarted | ToolCallDelta | ReplyFinished) -> dict[str, Any]:
    match event:
        case ReasoningDelta(text=text):
            return {"reasoning_content": text}
        case TextDelta(text=text):
            return {"content": text}
        case ToolCallStarted(index=index, id=call_id, name=name):
            function = {"name": name, "arguments": ""}
            return {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}
        case ToolCallDelta(index=index, arguments=piece):
            return {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
        case ReplyFinished():
            return {}


async def chunk_stream(
    events: AsyncIterator[ModelEvent], writer: ChunkWriter, request_id: str
) -> AsyncGenerator[bytes, None]:
    """All of an answer's events, closed by exactly one `[DONE]`.

    An error before the first event is raised, while the status can still say so; a later one becomes an error event.
    """
    opened = False
    try:
        async with aclosing(closable(events)):
            async for event in events:
                for chunk in writer.chunks(event):
                    opened = True
                    yield chunk
            assert writer.is_finished, "a model's stream ends when each choice has its ReplyFinished"
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
