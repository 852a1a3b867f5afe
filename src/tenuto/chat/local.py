"""Our own model behind messages: a `ModelClient` over an `EngineClient`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass, field
from typing import TypeVar

import anyio
import msgspec

from tenuto.chat.choices import Choice, merge, share_prompt, turn_of_choice
from tenuto.chat.computed_runs import ComputedRuns
from tenuto.chat.conversation import Conversation, Reply
from tenuto.chat.encoder import ConversationEncoder, Encoded, EncodingLimits
from tenuto.chat.generation import GONE, Generation, close_session
from tenuto.chat.held import HeldConversation, HeldConversations
from tenuto.chat.reading import ReplyForm
from tenuto.chat.relaxations import RelaxationLog
from tenuto.chat.releases import LocalReleases
from tenuto.chat.reply import ReplyReader
from tenuto.chat.seen import Expectation, SeenConversations
from tenuto.chat.spent import OnBrokenOff, nobody
from tenuto.chat.turn import Turn, check_size, read_turn
from tenuto.clock import Clock
from tenuto.errors import SessionNotFound
from tenuto.ids import IdSource, SessionId, TokenId
from tenuto.offload import Preparation
from tenuto.protocol.chat import ChatFinishReason, ChatRequest, ModelEvent, ModelInfo, ReplyFinished
from tenuto.protocol.engine import EngineClient, EngineInfo
from tenuto.protocol.grammar import ReasoningFrame
from tenuto.protocol.hints import ExpectedWait
from tenuto.text.template import ChatTemplate
from tenuto.text.tokenizer import Tokenizer
from tenuto.text.tool_format import ToolCallFormat

T = TypeVar("T")


@dataclass(frozen=True)
class ChatLimits:
    """Bounds of a client."""

    max_sessions: int = 1024  # conversations held; for one more the longest idle is closed
    cleanup_s: float = 10.0  # longest wait for the engine to take back an interrupted turn
    prepare_s: float = 10.0  # longest wait for a request to be read, rendered and encoded
    prepare_threads: int = 0  # that do so beside the event loop; 0: on it, for simulations and tests
    encoding: EncodingLimits = field(default_factory=EncodingLimits)


@dataclass(frozen=True)
class TextTools:
    """What turns messages into ids and back, for one model."""

    tokenizer: Tokenizer
    template: ChatTemplate
    tool_format: ToolCallFormat


class LocalModelClient:
    """Renders a conversation, splices what is new onto what its session holds, and reads the reply.

    A turn either happens or does not: if its stream fails or is closed before ReplyFinished, the session is cut back
    to what it still shares with the conversation, and the next request goes on from there. A request without a
    session takes the same path through a session of its own, closed at the end; equal beginnings are then found in
    the engine's prefix cache. Of several choices each has such a session, and they share the KV of the prompt.

    The client owns the sessions it is asked for while a turn runs on them; whoever else changes them borrows them
    (`lend`). A session that somebody else opened is taken over with its tokens.
    """

    def __init__(
        self,
        engine: EngineClient,
        text: TextTools,
        *,
        ids: IdSource,
        clock: Clock,
        limits: ChatLimits = ChatLimits(),
        on_broken_off: OnBrokenOff = nobody,
    ) -> None:
        self._engine = engine
        self._text = text
        self._ids = ids
        self._clock = clock
        self._limits = limits
        self._on_broken_off = on_broken_off
        self._encoder = ConversationEncoder(text.tokenizer, text.template, text.tool_format, limits.encoding)
        self._held = HeldConversations(limits.max_sessions)
        self._seen = SeenConversations(limits.encoding.max_seen_messages)
        self._relaxations = RelaxationLog()
        self._preparing = Preparation("tenuto-chat", limits.prepare_threads, limits.prepare_s)
        self._engine_info: EngineInfo | None = None
        self.releases = LocalReleases(engine, self._encode, clock, ComputedRuns())

    async def info(self) -> ModelInfo:
        engine = await self._known_engine()
        return ModelInfo(
            name=engine.model,
            max_model_tokens=engine.max_model_tokens,
            device=engine.device,
            precision=engine.precision,
        )

    async def _known_engine(self) -> EngineInfo:
        if self._engine_info is None:
            self._engine_info = await self._engine.info()
        return self._engine_info

    async def stream(self, request: ChatRequest) -> AsyncIterator[ModelEvent]:
        """Continue the conversation; see `ModelClient.stream`.

        Raises:
            InvalidRequest: names the field or message.
            SessionBusy: another stream runs on the session; that one is not disturbed.
            ContextLengthError: prompt and reply do not fit, with the numbers.
            QueueFull: too many conversations are busy, or the engine's queue is full.
            Cancelled: the session was closed meanwhile.
            TemplateError, GrammarError, NeverFits, EngineClosed: as their docstrings say.
        """
        start_s = self._clock.now()
        engine = await self._known_engine()
        tokenizer = self._text.tokenizer
        check_size(request, engine.max_model_tokens, tokenizer.max_token_bytes)
        turn = await self._prepare(lambda: read_turn(request, self._text.tool_format, tokenizer.eos_ids))
        self._relaxations.tell(turn.relaxed)
        choices = [Choice(0, await self._claim(request.session), turn)]
        choices += [Choice(i, await self._claim(None), turn_of_choice(turn, i)) for i in range(1, request.n)]
        try:
            replies = choices[0].held.replies
            encoded, history_break = await self._prepare(lambda: self._encoded(turn.conversation, replies))
            expected = Expectation(encoded.num_known, history_break, engine.block_size)
            turn.check_room(len(encoded.ids), engine.max_model_tokens)
            for choice in choices:
                choice.turn = choice.turn.after_reasoning(_frame_of_grammar(request, encoded))
            if request.n > 1:
                await share_prompt(self._engine, choices, encoded.ids)
            streams = [self._reply(choice, encoded, expected, start_s) for choice in choices]
            merged = streams[0] if request.n == 1 else merge(streams, 3 * self._limits.cleanup_s)
            async with aclosing(merged) as events:
                async for event in events:
                    yield event
        finally:
            for choice in choices:  # those whose stream did not begin
                await self._release(choice)

    async def _reply(
        self, choice: Choice, encoded: Encoded, expected: Expectation, start_s: float
    ) -> AsyncGenerator[ModelEvent, None]:
        """The events of one choice."""
        try:
            hints = choice.turn.params.hints
            self.releases.computed(hints, encoded.ids)
            generation = Generation(self._engine, choice.held, choice.turn, encoded, expected, self._limits.cleanup_s)
            choice.generation = generation
            reader = self._reader(choice.turn, encoded)
            ttft_s: float | None = None
            while not reader.stopped and (new := await generation.next()) is not None:
                ttft_s = self._clock.now() - start_s if ttft_s is None else ttft_s
                for event in reader.push_all(new.ids, new.logprobs):
                    yield _of(choice, event)
            if not reader.stopped:
                for event in reader.finish(is_cut=generation.finish == "length"):
                    yield _of(choice, event)
            kept, added = reader.kept_ids()
            self._encoder.remember(*await generation.keep(kept, added, reader.message))
            self._encoder.settle(encoded)
            self._seen.remember(encoded.conversation.with_reply(reader.message))
            self.releases.computed(hints, (*encoded.ids, *kept, *added))
        finally:
            await self._release(choice)
        # Only now: whoever stops listening after the last event must not undo the turn, nor find the session busy.
        yield ReplyFinished(
            reason=_reason(generation, reader),
            message=reader.message,
            usage=choice.usage(generation.usage(ttft_s or 0.0, self._clock.now() - start_s, reader.num_reasoning)),
            token_ids=(*kept, *added),
            choice=choice.index,
            relaxed=choice.turn.relaxed,
        )

    async def _encode(self, request: ChatRequest) -> tuple[TokenId, ...]:
        """The ids of a request's conversation, as `stream` would compute them without a session."""
        engine = await self._known_engine()
        tokenizer = self._text.tokenizer
        check_size(request, engine.max_model_tokens, tokenizer.max_token_bytes)
        turn = await self._prepare(lambda: read_turn(request, self._text.tool_format, tokenizer.eos_ids))
        return (await self._prepare(lambda: self._encoder.encode(turn.conversation, {}))).ids

    def _encoded(self, conversation: Conversation, replies: Mapping[bytes, Reply]) -> tuple[Encoded, str | None]:
        """And why its ids may be no beginning of what was computed before."""
        encoded = self._encoder.encode(conversation, replies)
        return encoded, self._seen.explain(encoded.conversation, encoded.rewritten)

    async def _prepare(self, work: Callable[[], T]) -> T:
        too_slow = "the request took longer than {limit} to prepare; send shorter messages or simpler tools"
        return await self._preparing.run(work, too_slow)

    def _reader(self, turn: Turn, encoded: Encoded) -> ReplyReader:
        tool_format = self._text.tool_format if turn.may_call else None
        form = ReplyForm(self._text.tokenizer, tool_format, encoded.frame, turn.conversation.tools)
        return ReplyReader(form, turn.stop, self._ids, turn.parallel_tool_calls)

    async def _claim(self, session: SessionId | None) -> HeldConversation:
        """The conversation, busy from now on; a request without a session gets one that nobody else knows."""
        if session is None:
            return HeldConversation(self._ids.session(), is_busy=True, is_temporary=True)
        held, displaced = self._held.claim(session)
        if displaced is not None and not displaced.is_foreign:
            try:
                await close_session(self._engine, displaced.session)
            except BaseException:
                held.is_busy = False
                raise
        return held

    async def _release(self, choice: Choice) -> None:
        """Whatever happened: nothing runs on, and a session for this request alone is closed. Once only."""
        if choice.is_released:
            return
        choice.is_released = True
        held = choice.held
        try:
            if choice.generation is not None:
                choice.generation.tell(self._on_broken_off)
                await choice.generation.end()
            if held.is_temporary and (held.is_open or held.is_unsure):
                with anyio.move_on_after(self._limits.cleanup_s, shield=True):
                    await close_session(self._engine, held.session)
        finally:
            held.is_busy = False

    async def suspend(self, session: SessionId, wait: ExpectedWait) -> None:
        held = self._held.find(session)
        if held is None or not held.is_open:
            return
        try:
            await self._engine.suspend(session, wait)
        except SessionNotFound:
            held.lose(GONE)

    async def close(self, session: SessionId) -> None:
        """Forget a held conversation and free its KV; a stream that runs on it ends with Cancelled."""
        held = self._held.drop(session)
        if held is not None and held.may_be_open:
            await close_session(self._engine, session)

    def lend(self, session: SessionId) -> AbstractContextManager[None]:
        """See `HeldConversations.lend`: others work on the engine's sessions too, but not at the same time."""
        return self._held.lend(session)

    def forget(self, session: SessionId) -> None:
        """Somebody else closes the engine's session: a turn that runs on it ends with Cancelled."""
        self._held.drop(session)

    async def aclose(self) -> None:
        """Close every held conversation."""
        for session in self._held.sessions():
            await self.close(session)


def _of(choice: Choice, event: ModelEvent) -> ModelEvent:
    return event if choice.index == 0 else msgspec.structs.replace(event, choice=choice.index)


def _frame_of_grammar(request: ChatRequest, encoded: Encoded) -> ReasoningFrame | None:
    """What comes before the text that the grammar is about; None: that begins at once."""
    frame = encoded.frame
    shall_think = request.thinking is not False or (frame is not None and frame.is_open)
    return frame if shall_think and encoded.may_think else None


def _reason(generation: Generation, reader: ReplyReader) -> ChatFinishReason:
    """A reply cut by max_tokens says so even if it made calls: it may have wanted more."""
    if generation.finish == "length" and not reader.is_complete:
        return "length"
    return "tool_calls" if reader.message.tool_calls else "stop"
