"""Model events → the typed events of a streamed response, and the response they add up to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

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
from tenuto.protocol.messages import Message
from tenuto.server.errors import status_and_body
from tenuto.server.replies import reuse_reply
from tenuto.server.responses.output_items import (
    CallOutput,
    Event,
    MessageOutput,
    OutputItem,
    ReasoningOutput,
)
from tenuto.server.responses.wire import ItemStatus

Status = Literal["in_progress", "completed", "incomplete", "failed"]


@dataclass(frozen=True)
class ResponseForm:
    """What is known of a response before it is generated."""

    name: str  # what its id and those of its items have in common
    created: int  # Unix seconds
    model: str
    echoed: dict[str, Any]

    @property
    def id(self) -> str:
        return f"resp_{self.name}"

    def wire(self, status: Status, output: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
        own = {"id": self.id, "object": "response", "created_at": self.created, "status": status, "model": self.model}
        ends: dict[str, Any] = {"completed_at": None, "error": None, "incomplete_details": None, "usage": None}
        return own | {"output": output} | ends | self.echoed | fields


class ResponseWriter:
    """One response, whole or streamed: both are made here, so both say the same.

    Text, reasoning and calls become items in the order in which they come. A call that breaks off is an `incomplete`
    item, and what was written of it is text besides.

    Args:
        now: Unix seconds.
        keep: called once, with the response and the reply as a value, before anybody is told that it is whole.
    """

    def __init__(
        self, form: ResponseForm, now: Callable[[], int], keep: Callable[[dict[str, Any], Message], None]
    ) -> None:
        self._form = form
        self._now = now
        self._keep = keep
        self._closed: list[dict[str, Any]] = []
        self._open: OutputItem | None = None
        self._scores: list[TokenScore] = []  # of tokens whose text, or call, has not come yet
        self._num_events = 0
        self._begun = False
        self.response: dict[str, Any] | None = None  # once it is whole

    @property
    def is_finished(self) -> bool:
        return self.response is not None

    def pieces(self, event: ModelEvent) -> list[bytes]:
        return [self._encoded(made) for made in self.add(event)]

    def end(self) -> bytes:
        """Nothing: the last event says that it is the last."""
        return b""

    def failure(self, error: Exception) -> bytes:
        status, body = status_and_body(error)
        code = "rate_limit_exceeded" if status == 429 else "invalid_prompt" if status < 500 else "server_error"
        output = self._output("incomplete")
        failed = {"code": code, "message": body["error"]["message"]}
        response = self._form.wire("failed", output, error=failed)
        return self._encoded({"type": "response.failed", "response": response})

    def add(self, event: ModelEvent) -> list[Event]:
        """The events that one of the model's leads to."""
        made = self._begin()
        match event:
            case TokensScored(tokens=tokens):
                self._scores.extend(score for score in tokens if not score.reasoning)
            case ReasoningDelta(text=text):
                if not isinstance(self._open, ReasoningOutput):
                    made += self._begin_item(ReasoningOutput(self._form.name, self._next_place))
                assert isinstance(self._open, ReasoningOutput)
                made += self._open.add(text)
            case TextDelta(text=text):
                made += self._add_text(text)
            case ToolCallStarted(id=call_id, name=tool):
                made += self._begin_item(CallOutput(self._form.name, self._next_place, call_id=call_id, tool=tool))
            case ToolCallDelta(arguments=arguments):
                self._scores.clear()  # of the call: only text is scored
                assert isinstance(self._open, CallOutput), "a call's arguments come after it started"
                made += self._open.add(arguments)
            case ToolCallFinished():
                made += self._end_item("completed")
            case ReplyFinished():
                made += self._finish(event)
        return made

    def _begin(self) -> list[Event]:
        if self._begun:
            return []
        self._begun = True
        response = self._form.wire("in_progress", [])
        return [{"type": f"response.{kind}", "response": response} for kind in ("created", "in_progress")]

    @property
    def _next_place(self) -> int:
        """Of an item that begins now, after the open one has ended."""
        return len(self._closed) + (self._open is not None)

    def _add_text(self, text: str) -> list[Event]:
        made: list[Event] = []
        scores, self._scores = self._scores, []
        if not isinstance(self._open, MessageOutput):
            made += self._begin_item(MessageOutput(self._form.name, self._next_place))
        assert isinstance(self._open, MessageOutput)
        return made + self._open.add(text, scores)

    def _begin_item(self, item: OutputItem) -> list[Event]:
        # Nothing but a call's end says that it is whole: a call that is still open here has broken off.
        made = self._end_item("incomplete" if isinstance(self._open, CallOutput) else "completed")
        self._open = item
        self._scores.clear()
        return made + item.opened()

    def _end_item(self, status: ItemStatus) -> list[Event]:
        if self._open is None:
            return []
        made = self._open.closed(status)
        self._closed.append(self._open.wire(status))
        self._open = None
        return made

    def _output(self, status: ItemStatus) -> list[dict[str, Any]]:
        return self._closed + ([] if self._open is None else [self._open.wire(status)])

    def _finish(self, event: ReplyFinished) -> list[Event]:
        made: list[Event] = []
        if self._open is None and not self._closed:
            made += self._begin_item(MessageOutput(self._form.name, 0))  # a reply without a word is a message too
        cut = event.reason == "length"
        made += self._end_item("incomplete" if cut or isinstance(self._open, CallOutput) else "completed")
        fields: dict[str, Any] = {"usage": usage_of(event.usage)}
        if cut:
            fields["incomplete_details"] = {"reason": "max_output_tokens"}
        else:
            fields["completed_at"] = self._now()
        status: Status = "incomplete" if cut else "completed"
        self.response = self._form.wire(status, self._closed, **fields)
        self._keep(self.response, event.message)
        return [*made, {"type": f"response.{status}", "response": self.response}]

    def _encoded(self, event: Event) -> bytes:
        kind: str = event["type"]
        value = {"type": kind, "sequence_number": self._num_events, **event}
        self._num_events += 1
        return f"event: {kind}\ndata: ".encode() + msgspec.json.encode(value) + b"\n\n"


def usage_of(usage: ChatUsage) -> dict[str, Any]:
    """The wire form of a response's usage."""
    return {
        "input_tokens": usage.num_prompt,
        # Written: as others count it, tokens that are charged for being cached. Nothing is charged for here.
        "input_tokens_details": {"cached_tokens": usage.num_held + usage.num_shared, "cache_write_tokens": 0},
        "output_tokens": usage.num_generated,
        "output_tokens_details": {"reasoning_tokens": usage.num_reasoning},
        "total_tokens": usage.num_prompt + usage.num_generated,
        "tenuto": reuse_reply((usage,)),
    }
