"""Model events → the chunks of a streamed chat completion, as server-sent events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

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
from tenuto.server.errors import status_and_body
from tenuto.server.replies import logprobs_reply, usage_reply

DONE = b"data: [DONE]\n\n"


def sse_event(value: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


class CommonFields:
    """What all events of one answer begin with, encoded once."""

    def __init__(self, fields: dict[str, Any]) -> None:
        assert fields, "there is nothing in common"
        self._start = b"data: " + msgspec.json.encode(fields)[:-1] + b","

    def event(self, more: dict[str, Any]) -> bytes:
        """An event of these fields and of more, of which there is one at least."""
        return self._start + msgspec.json.encode(more)[1:] + b"\n\n"


@dataclass(frozen=True)
class ChunkFormat:
    """What all chunks of one answer have in common."""

    id: str
    created: int
    model: str
    include_usage: bool

    @cached_property
    def _common(self) -> CommonFields:
        kind = "chat.completion.chunk"
        return CommonFields({"id": self.id, "object": kind, "created": self.created, "model": self.model})

    def _chunk(
        self, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None, extra: dict[str, Any] | None = None
    ) -> bytes:
        more = {"choices": choices, **(extra or {})}
        if self.include_usage:
            more["usage"] = usage
        return self._common.event(more)

    def choice(
        self, index: int, delta: dict[str, Any], finish_reason: str | None, scores: Sequence[TokenScore]
    ) -> bytes:
        """News of one choice."""
        logprobs = logprobs_reply(scores)
        return self._chunk([{"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}])

    def extension(self, name: str, value: dict[str, Any]) -> bytes:
        """A chunk without choices that carries a field of our own."""
        return self._chunk([], None, {name: value})

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

    def pieces(self, event: ModelEvent) -> list[bytes]:
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

    def end(self) -> bytes:
        return DONE

    def failure(self, error: Exception) -> bytes:
        return sse_event(status_and_body(error)[1]) + DONE


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
