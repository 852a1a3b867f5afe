"""A model whose replies are written down beforehand, for tests of agents and servers."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from tenuto.clock import Clock, RealClock
from tenuto.errors import SessionBusy, TenutoError
from tenuto.ids import IdSource, SessionId, TokenId
from tenuto.protocol.chat import (
    ChatFinishReason,
    ChatRequest,
    ChatUsage,
    ModelEvent,
    ModelInfo,
    ReasoningDelta,
    ReplyFinished,
    ScoredToken,
    TextDelta,
    TokenScore,
    TokensScored,
    ToolCallDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from tenuto.protocol.hints import ExpectedWait
from tenuto.protocol.messages import Message, ToolCall


@dataclass(frozen=True)
class Reply:
    """One scripted turn: reasoning and text first, then calls, then the error if there is one."""

    text: str = ""
    reasoning: str = ""  # streamed first
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()  # (tool name, arguments)
    error: TenutoError | None = None  # raised after text and calls were streamed
    delay_s: float = 0.0  # before the first piece
    piece_delay_s: float = 0.0  # before each further piece


def call(name: str, /, **arguments: Any) -> Reply:
    """A reply that is one tool call: `call("weather", city="北京")`."""
    return Reply(calls=((name, arguments),))


Scripted: TypeAlias = "Reply | str | TenutoError"
Script: TypeAlias = "Sequence[Scripted] | Callable[[ChatRequest], Scripted]"


@dataclass
class Seen:
    """What a ScriptedModel was asked, in order."""

    requests: list[ChatRequest] = field(default_factory=list)
    cancelled: list[ChatRequest] = field(default_factory=list)  # streams closed before their end
    suspends: list[tuple[SessionId, ExpectedWait]] = field(default_factory=list)
    closes: list[SessionId] = field(default_factory=list)  # also those of sessions that were not open
    max_streaming: int = 0  # most streams at once


class ScriptedModel:
    """A `ModelClient` that plays a script and records what it was asked.

    A token is a piece of up to `piece_chars` characters; usage counts those. Held tokens are those of the messages
    the session already saw, as long as the request extends them. `max_tokens` and `stop` of a request are obeyed, and
    so is `n`: each choice plays a reply, one after the other. Scores that are asked for say that each piece was as
    likely as not.

    Args:
        script: replies in order (a reply past the end is an AssertionError, so a test cannot pass by accident),
            or a function of the request, e.g. for several agents at once.
        clock: what the delays wait on.
    """

    def __init__(
        self, script: Script, *, clock: Clock | None = None, piece_chars: int = 3, seed: int = 0, name: str = "scripted"
    ) -> None:
        self._script = script
        self._clock = clock if clock is not None else RealClock()
        self._piece_chars = piece_chars
        self._ids = IdSource(seed)
        self._name = name
        self._played = 0
        self._streaming: list[ChatRequest] = []
        self.sessions: dict[SessionId, tuple[Message, ...]] = {}  # held sessions and the messages they hold
        self.seen = Seen()

    async def info(self) -> ModelInfo:
        return ModelInfo(name=self._name, max_model_tokens=8192, device="none", precision="none")

    async def suspend(self, session: SessionId, wait: ExpectedWait) -> None:
        self.seen.suspends.append((session, wait))

    async def close(self, session: SessionId) -> None:
        self.seen.closes.append(session)
        self.sessions.pop(session, None)

    async def stream(self, request: ChatRequest) -> AsyncIterator[ModelEvent]:
        self.seen.requests.append(request)
        session = request.session
        if session is not None and any(other.session == session for other in self._streaming):
            raise SessionBusy(f"session {session} is computing for another call")
        self._streaming.append(request)
        self.seen.max_streaming = max(self.seen.max_streaming, len(self._streaming))
        ended = False
        try:
            for choice in range(request.n):
                reply = self._next(request)
                async for event in self._play(request, reply, choice):
                    ended = isinstance(event, ReplyFinished) and choice == request.n - 1
                    if isinstance(event, ReplyFinished) and session is not None:
                        self.sessions[session] = (*request.messages, event.message)
                    yield event
                if reply.error is not None:
                    ended = True
                    raise reply.error
        finally:
            self._streaming.remove(request)
            if not ended:
                self.seen.cancelled.append(request)

    def _next(self, request: ChatRequest) -> Reply:
        if callable(self._script):
            scripted = self._script(request)
        else:
            assert self._played < len(self._script), f"the script has only {len(self._script)} replies"
            scripted = self._script[self._played]
        self._played += 1
        if isinstance(scripted, str):
            return Reply(text=scripted)
        return Reply(error=scripted) if isinstance(scripted, TenutoError) else scripted

    async def _play(self, request: ChatRequest, reply: Reply, choice: int) -> AsyncIterator[ModelEvent]:
        start = self._clock.now()
        if reply.delay_s:
            await self._clock.sleep(reply.delay_s)
        ttft_s = self._clock.now() - start
        text, reason = self._cut(request, reply)
        num_reasoning = 0
        for piece in self._pieces(reply.reasoning):
            num_reasoning += 1
            yield ReasoningDelta(text=piece, choice=choice)
        num_generated = num_reasoning
        for piece in self._pieces(text):
            if num_generated and reply.piece_delay_s:
                await self._clock.sleep(reply.piece_delay_s)
            num_generated += 1
            if request.logprobs is not None:
                yield TokensScored(tokens=(_score(piece, request.logprobs),), choice=choice)
            yield TextDelta(text=piece, choice=choice)
        calls: list[ToolCall] = []
        for index, (name, arguments) in enumerate(reply.calls if reason == "tool_calls" else ()):
            made = ToolCall(id=self._ids.call(), name=name, arguments=arguments)
            yield ToolCallStarted(index=index, id=made.id, name=name, choice=choice)
            for piece in self._pieces(json.dumps(arguments, ensure_ascii=False)):
                if reply.piece_delay_s:
                    await self._clock.sleep(reply.piece_delay_s)
                num_generated += 1
                yield ToolCallDelta(index=index, arguments=piece, choice=choice)
            calls.append(made)
            yield ToolCallFinished(index=index, call=made, choice=choice)
        if reply.error is not None:
            return
        message = Message(role="assistant", content=text, tool_calls=tuple(calls), reasoning=reply.reasoning)
        usage = self._usage(request, num_generated, ttft_s, self._clock.now() - start)
        usage = msgspec.structs.replace(usage, num_reasoning=num_reasoning)
        if choice:  # the prompt is counted once
            usage = msgspec.structs.replace(usage, num_prompt=0, num_held=0, num_computed=0)
        yield ReplyFinished(reason=reason, message=message, usage=usage, choice=choice)

    def _cut(self, request: ChatRequest, reply: Reply) -> tuple[str, ChatFinishReason]:
        """The text up to the first stop string or max_tokens, and why the turn ends."""
        text = reply.text
        reason: ChatFinishReason = "tool_calls" if reply.calls else "stop"
        starts = [at for at in (text.find(stop) for stop in request.stop) if at >= 0]
        if starts:
            text, reason = text[: min(starts)], "stop"
        if request.max_tokens is not None and len(text) > request.max_tokens * self._piece_chars:
            text, reason = text[: request.max_tokens * self._piece_chars], "length"
        return text, reason

    def _pieces(self, text: str) -> Iterable[str]:
        return (text[at : at + self._piece_chars] for at in range(0, len(text), self._piece_chars))

    def _num_tokens(self, messages: Sequence[Message]) -> int:
        return sum(
            len(list(self._pieces(str(m.content) + "".join(str(c.arguments) for c in m.tool_calls)))) + 1
            for m in messages
        )

    def _usage(self, request: ChatRequest, num_generated: int, ttft_s: float, total_s: float) -> ChatUsage:
        held = self.sessions.get(request.session, ()) if request.session is not None else ()
        extends = request.messages[: len(held)] == held
        num_held = self._num_tokens(held) if extends else 0
        num_prompt = self._num_tokens(request.messages)
        return ChatUsage(
            num_prompt=num_prompt,
            num_held=num_held,
            num_computed=num_prompt - num_held,
            num_generated=num_generated,
            num_steps=num_generated,
            ttft_s=ttft_s,
            total_s=total_s,
            reuse_break=None if extends else "history differs",
        )


def _score(piece: str, num_top: int) -> TokenScore:
    token = ScoredToken(id=TokenId(len(piece)), data=piece.encode(), logprob=math.log(0.5))
    return TokenScore(token=token, top=(token,) * num_top)
