"""Completion events → the chunks of a streamed text completion, and the completion they add up to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tenuto.protocol.chat import ChatUsage, TextDelta, TokenScore, TokensScored
from tenuto.protocol.completion import CompletionEvent, CompletionFinished
from tenuto.server.completions.old_logprobs import OldLogprobs, joined
from tenuto.server.errors import status_and_body
from tenuto.server.replies import usage_reply
from tenuto.server.sse import DONE, sse_event


@dataclass(frozen=True)
class CompletionForm:
    """What all pieces of one answer have in common."""

    id: str
    created: int  # Unix seconds
    model: str
    num_choices: int
    scored: bool
    include_usage: bool = False

    def wire(self, choices: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
        own = {"id": self.id, "object": "text_completion", "created": self.created, "model": self.model}
        return own | {"choices": choices} | fields


@dataclass
class _Choice:
    logprobs: OldLogprobs = field(default_factory=OldLogprobs)
    scores: list[TokenScore] = field(default_factory=list)  # of tokens whose text has not come yet
    pieces: list[dict[str, Any]] = field(default_factory=list)


class CompletionWriter:
    """One answer, whole or streamed: both are made of the same pieces, so both say the same."""

    def __init__(self, form: CompletionForm) -> None:
        self._form = form
        self._choices = [_Choice() for _ in range(form.num_choices)]
        self._usages: list[ChatUsage] = []

    @property
    def is_finished(self) -> bool:
        return len(self._usages) == self._form.num_choices

    def add(self, event: CompletionEvent) -> dict[str, Any] | None:
        """A choice's next piece; None if there is none yet."""
        choice = self._choices[event.choice]
        match event:
            case TokensScored(tokens=tokens):
                choice.scores.extend(tokens)
                return None
            case TextDelta(text=text):
                return self._piece(event.choice, text, None)
            case CompletionFinished(reason=reason, usage=usage):
                self._usages.append(usage)
                return self._piece(event.choice, "", reason)

    def _piece(self, index: int, text: str, reason: str | None) -> dict[str, Any]:
        choice = self._choices[index]
        logprobs = choice.logprobs.wire(choice.scores) if self._form.scored else None
        choice.scores = []
        piece = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}
        choice.pieces.append(piece)
        return piece

    def pieces(self, event: CompletionEvent) -> list[bytes]:
        piece = self.add(event)
        if piece is None:
            return []
        usage = {"usage": None} if self._form.include_usage else {}
        chunks = [sse_event(self._form.wire([piece], **usage))]
        self._choices[event.choice].pieces.clear()  # they are on their way
        if self.is_finished and self._form.include_usage:
            chunks.append(sse_event(self._form.wire([], usage=usage_reply(self._usages))))
        return chunks

    def end(self) -> bytes:
        return DONE

    def failure(self, error: Exception) -> bytes:
        return sse_event(status_and_body(error)[1]) + DONE

    def whole(self) -> dict[str, Any]:
        """The wire form of `Completion`, once all choices are finished."""
        assert self.is_finished, "a model's stream ends when each choice has its last event"
        choices = [
            {
                "index": index,
                "text": "".join(piece["text"] for piece in choice.pieces),
                "logprobs": joined([piece["logprobs"] for piece in choice.pieces]) if self._form.scored else None,
                "finish_reason": choice.pieces[-1]["finish_reason"],
            }
            for index, choice in enumerate(self._choices)
        ]
        return self._form.wire(choices, usage=usage_reply(self._usages))
