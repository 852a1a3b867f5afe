"""POST /v1/chat/completions, plain and streamed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response
from starlette.requests import Request

from tenuto.ids import RequestId
from tenuto.protocol.chat import ModelEvent, ReplyFinished, TextDelta, ToolCallDelta, ToolCallFinished, ToolCallStarted
from tenuto.server.body import read_json_object
from tenuto.server.chat_request import NOT_SERVED, parse_body, to_chat_request
from tenuto.server.disconnect import ClientGone, until_disconnect
from tenuto.server.errors import log_disconnect
from tenuto.server.replies import ERROR_RESPONSES, ChatCompletion, usage_reply
from tenuto.server.service import Service
from tenuto.server.sse import ChunkFormat, EventStream, chunk_stream, closable

PATH = "/v1/chat/completions"

_DESCRIPTION = f"""
Continues a conversation by one turn, as OpenAI's API does.

With `stream`, the answer is a series of server-sent events, each `data:` and a `chat.completion.chunk`: the first has
the role, then come pieces of text and of tool calls (`index` says of which call; its first piece has the id and the
name), then one chunk with the `finish_reason`, one with the usage if it was asked for, and `data: [DONE]`. An error
before the first event has its own status; a later one is an event `{{"error": ...}}`, followed by `data: [DONE]`.

A client that closes its connection cancels its request.

Not served, and refused unless they ask for nothing: {", ".join(f"`{name}`" for name in NOT_SERVED)}; images, audio and
files in messages. `n` may be 1, `response_format` may be text.
"""

_STREAM = {"text/event-stream": {"schema": {"type": "string"}}}


def chat_completion_routes(service: Service, body_schema: dict[str, Any]) -> APIRouter:
    """The route. `body_schema` documents the body, which the route reads itself, under limits."""
    router = APIRouter(tags=["chat"])

    @router.post(
        PATH,
        summary="Continue a conversation",
        description=_DESCRIPTION,
        response_model=ChatCompletion,
        response_description="The answer, whole or streamed",
        responses={200: {"content": _STREAM}, **ERROR_RESPONSES},
        openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": body_schema}}}},
    )
    async def create_chat_completion(request: Request) -> Response:
        request_id: RequestId = request.state.request_id
        limits = service.limits
        body = parse_body(await read_json_object(request, limits))
        service.check_name(body.model)
        events = service.model.stream(to_chat_request(body, request_id, limits))
        options = body.stream_options
        form = ChunkFormat(
            id="chatcmpl-" + request_id.removeprefix("req-"),
            created=int(service.clock.today().timestamp()),
            model=service.name,
            include_usage=bool(options and options.include_usage),
        )
        if body.stream:
            return EventStream(chunk_stream(events, form, request_id), request_id, limits)
        try:
            reply = await until_disconnect(request.receive, _collect(events), limits.cancel_deadline_s)
        except ClientGone:
            log_disconnect(request_id)
            return Response(status_code=499)  # nobody reads it
        return JSONResponse(reply.completion(form))

    return router


@dataclass
class _Call:
    id: str
    name: str
    pieces: list[str] = field(default_factory=list)


@dataclass
class _Reply:
    """An answer put together from the same events that a stream is made of, so that both say the same."""

    texts: list[str] = field(default_factory=list)
    calls: dict[int, _Call] = field(default_factory=dict)  # by index
    finished: ReplyFinished | None = None

    def add(self, event: ModelEvent) -> None:
        match event:
            case TextDelta(text=text):
                self.texts.append(text)
            case ToolCallStarted(index=index, id=call_id, name=name):
                self.calls[index] = _Call(call_id, name)
            case ToolCallDelta(index=index, arguments=piece):
                self.calls[index].pieces.append(piece)
            case ToolCallFinished():
                pass
            case ReplyFinished():
                self.finished = event

    def completion(self, form: ChunkFormat) -> dict[str, Any]:
        """The wire form of `ChatCompletion`."""
        assert self.finished is not None, "a model's stream ends with ReplyFinished"
        message: dict[str, Any] = {
            "role": "assistant",
            "content": "".join(self.texts) if self.texts or not self.calls else None,
            "refusal": None,
        }
        if self.calls:
            message["tool_calls"] = [
                {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": "".join(c.pieces)}}
                for _, c in sorted(self.calls.items())
            ]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self.finished.reason}
        return {
            "id": form.id,
            "object": "chat.completion",
            "created": form.created,
            "model": form.model,
            "choices": [choice],
            "usage": usage_reply(self.finished.usage),
        }


async def _collect(events: AsyncIterator[ModelEvent]) -> _Reply:
    reply = _Reply()
    async with aclosing(closable(events)):
        async for event in events:
            reply.add(event)
    return reply
