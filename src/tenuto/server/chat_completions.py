"""POST /v1/chat/completions, plain and streamed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response
from starlette.requests import Request

from tenuto.ids import RequestId
from tenuto.protocol.chat import (
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
from tenuto.server.answers import STREAM_CONTENT, EventStream, body_documentation, closable, whole_answer
from tenuto.server.body import read_json_object
from tenuto.server.chat_request import NOT_SERVED, to_chat_request
from tenuto.server.hints import EditedReply, EditedWriter, apply_edits, edits_of, manages, no_reply, run_hints
from tenuto.server.replies import ERROR_RESPONSES, ChatCompletion, logprobs_reply, usage_reply
from tenuto.server.service import Service
from tenuto.server.sessions import chat_events
from tenuto.server.sse import ChunkFormat, ChunkWriter
from tenuto.server.wire import ChatCompletionBody, EditsOnlyBody
from tenuto.server.wire_shape import parse_body

PATH = "/v1/chat/completions"

_DESCRIPTION = f"""
Continues a conversation by one turn, as OpenAI's API does.

With `stream`, the answer is a series of server-sent events, each `data:` and a `chat.completion.chunk`: the first has
the role, then come pieces of text and of tool calls (`index` says of which call; its first piece has the id and the
name), then one chunk with the `finish_reason`, one with the usage if it was asked for, and `data: [DONE]`. An error
before the first event has its own status; a later one is an event `{{"error": ...}}`, followed by `data: [DONE]`.

A client that closes its connection cancels its request.

Not served, and refused unless they ask for nothing: {", ".join(f"`{name}`" for name in NOT_SERVED)}; images, audio and
files in messages.
"""


def chat_completion_routes(service: Service) -> APIRouter:
    router = APIRouter(tags=["chat"])

    @router.post(
        PATH,
        summary="Continue a conversation",
        description=_DESCRIPTION,
        response_model=ChatCompletion,
        response_description="The answer, whole or streamed",
        responses={200: {"content": STREAM_CONTENT}, **ERROR_RESPONSES},
        openapi_extra=body_documentation(ChatCompletionBody),
    )
    async def create_chat_completion(request: Request) -> Response:
        request_id: RequestId = request.state.request_id
        limits = service.limits
        raw = await read_json_object(request, limits)
        only_edits = manages(raw)
        body = parse_body(raw, EditsOnlyBody if only_edits else ChatCompletionBody, NOT_SERVED)
        service.check_name(body.model)
        edits = edits_of(body.agent_hint)
        hints = run_hints(request, agent=body.agent_hint, cache_salt=body.cache_salt, cache_sharing=body.cache_sharing)
        asked = to_chat_request(body, request_id, limits, hints)
        events = no_reply() if only_edits else chat_events(service, asked, body.session_id)
        options = body.stream_options
        form = ChunkFormat(
            id="chatcmpl-" + request_id.removeprefix("req-"),
            created=int(service.clock.today().timestamp()),
            model=service.name,
            include_usage=bool(options and options.include_usage),
        )
        if not edits and not only_edits:
            if body.stream:
                return EventStream(events, ChunkWriter(form, asked.n), request_id, limits)
            return await whole_answer(request, _whole(events, asked.n, form), limits)
        num_choices = 1 if only_edits else asked.n
        reply = EditedReply(events, lambda: apply_edits(edits, asked, service, body.session_id))
        if body.stream:
            return EventStream(reply.events(), EditedWriter(form, num_choices, reply), request_id, limits)
        return await whole_answer(request, reply.told(_whole(reply.events(), num_choices, form)), limits)

    return router


@dataclass
class _Call:
    id: str
    name: str
    pieces: list[str] = field(default_factory=list)


@dataclass
class _Reply:
    """A choice put together from the same events that a stream is made of, so that both say the same."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: dict[int, _Call] = field(default_factory=dict)  # by index
    scores: list[TokenScore] = field(default_factory=list)
    finished: ReplyFinished | None = None

    def add(self, event: ModelEvent) -> None:
        match event:
            case ReasoningDelta(text=text):
                self.thoughts.append(text)
            case TextDelta(text=text):
                self.texts.append(text)
            case TokensScored(tokens=tokens):
                self.scores.extend(tokens)
            case ToolCallStarted(index=index, id=call_id, name=name):
                self.calls[index] = _Call(call_id, name)
            case ToolCallDelta(index=index, arguments=piece):
                self.calls[index].pieces.append(piece)
            case ToolCallFinished():
                pass
            case ReplyFinished():
                self.finished = event

    def choice(self, index: int) -> dict[str, Any]:
        """The wire form of `Choice`."""
        assert self.finished is not None, "a model's stream ends when each choice has its ReplyFinished"
        message: dict[str, Any] = {
            "role": "assistant",
            "content": "".join(self.texts) if self.texts or not self.calls else None,
            "refusal": None,
        }
        if self.thoughts:
            message["reasoning_content"] = "".join(self.thoughts)
        if self.calls:
            message["tool_calls"] = [
                {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": "".join(c.pieces)}}
                for _, c in sorted(self.calls.items())
            ]
        logprobs = logprobs_reply(self.scores)
        return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": self.finished.reason}


def _completion(replies: Sequence[_Reply], form: ChunkFormat) -> dict[str, Any]:
    """The wire form of `ChatCompletion`."""
    return {
        "id": form.id,
        "object": "chat.completion",
        "created": form.created,
        "model": form.model,
        "choices": [reply.choice(index) for index, reply in enumerate(replies)],
        "usage": usage_reply([reply.finished.usage for reply in replies if reply.finished is not None]),
    }


async def _whole(events: AsyncIterator[ModelEvent], num_choices: int, form: ChunkFormat) -> dict[str, Any]:
    """The wire form of `ChatCompletion`."""
    replies = [_Reply() for _ in range(num_choices)]
    async with aclosing(closable(events)):
        async for event in events:
            replies[event.choice].add(event)
    return _completion(replies, form)
