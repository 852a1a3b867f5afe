"""A model behind messages without any text room: messages are bytes, replies are read off the ids by a hash."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress

from tenuto.errors import Cancelled, SessionBusy, SessionNotFound, TenutoError
from tenuto.ids import CallId, IdSource, SessionId, TokenId
from tenuto.protocol.chat import (
    ChatFinishReason,
    ChatRequest,
    ChatUsage,
    ModelEvent,
    ModelInfo,
    ReplyFinished,
    TextDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from tenuto.protocol.engine import GenerateParams, GenerateUsage, TokenDelta
from tenuto.protocol.hints import ExpectedWait, RunHints
from tenuto.protocol.messages import Message, ToolCall
from tenuto.testing.world_stage import Stage

END_OF_TURN = TokenId(256)
_ROLES = {"system": TokenId(257), "user": TokenId(258), "assistant": TokenId(259), "tool": TokenId(259)}


class _Held:
    """What a session contains: messages, each with its ids."""

    def __init__(self) -> None:
        self.turns: list[tuple[Message, tuple[TokenId, ...]]] = []
        self.tokens: list[TokenId] = []
        self.is_busy = False
        self.is_open = False
        self.is_unsure = False  # whoever opened it was cancelled: the engine may have it


class ToyModelClient:
    """Implements `ModelClient` over the engine of a stage, and checks every id it gets.

    A held conversation appends only what is new; generated ids stay as they were. A turn that is left or fails is
    forgotten, to the token.
    """

    def __init__(self, stage: Stage, ids: IdSource) -> None:
        self._stage = stage
        self._ids = ids
        self._held: dict[SessionId, _Held] = {}

    async def info(self) -> ModelInfo:
        info = await self._stage.client.info()
        return ModelInfo(name=info.model, max_model_tokens=info.max_model_tokens)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[ModelEvent, None]:
        assert request.n == 1 and request.logprobs is None, "agents ask for neither"
        session = request.session if request.session is not None else self._ids.session()
        held = self._held.setdefault(session, _Held())
        if held.is_busy:
            raise SessionBusy(f"{session} is answering already")
        held.is_busy = True
        try:
            await self._open(session, held, request.hints)
            async with aclosing(self._turn(session, held, request)) as events:
                async for event in events:
                    yield event
        finally:
            held.is_busy = False
            if request.session is None:
                await self.close(session)

    async def suspend(self, session: SessionId, wait: ExpectedWait) -> None:
        if session in self._held:
            await self._stage.client.suspend(session, wait)

    async def close(self, session: SessionId) -> None:
        held = self._held.pop(session, None)
        if held is not None and (held.is_open or held.is_unsure):
            try:
                await self._stage.client.close(session)
            except SessionNotFound:
                if not held.is_unsure:
                    raise

    async def _open(self, session: SessionId, held: _Held, hints: RunHints) -> None:
        client = self._stage.client
        if held.is_unsure:
            with suppress(SessionNotFound):
                await client.close(session)
            held.is_unsure = False
        if held.is_open:
            return
        held.is_unsure = True
        try:
            await client.open(session, hints=hints)
        except TenutoError:
            held.is_unsure = False
            self._held.pop(session, None)
            raise
        held.is_unsure, held.is_open = False, True

    async def _turn(self, session: SessionId, held: _Held, request: ChatRequest) -> AsyncGenerator[ModelEvent, None]:
        prompt = await self._cut_to(session, held, request)
        known = len(held.tokens)
        done = False
        try:
            reply: list[TokenId] = []
            usage: GenerateUsage | None = None
            async with aclosing(self._generate(session, held, prompt, request)) as deltas:
                async for delta in deltas:
                    reply += delta.ids
                    usage = delta.usage
                    yield TextDelta(text=_text(delta.ids))
            assert usage is not None, "a reply without its end"
            message = self._read(reply, request)
            held.turns.append((message, tuple(reply)))
            held.tokens += [*prompt, *reply]
            done = True
        finally:
            if not done:
                await self._forget(session, held, known)
        for index, call in enumerate(message.tool_calls):
            yield ToolCallStarted(index=index, id=call.id, name=call.name)
            yield ToolCallFinished(index=index, call=call)
        yield ReplyFinished(
            reason=_reason(message, reply), message=message, usage=_usage(usage), token_ids=tuple(reply)
        )

    async def _cut_to(self, session: SessionId, held: _Held, request: ChatRequest) -> list[TokenId]:
        """Truncate the session to what it has in common with the conversation; the ids to add."""
        turns = [(m, _encode(m)) for m in (*request.examples, *request.messages)]
        common = 0
        while common < min(len(turns), len(held.turns)) and turns[common][0] == held.turns[common][0]:
            common += 1
        if common < len(held.turns):
            del held.turns[common:]
            del held.tokens[sum(len(ids) for _, ids in held.turns) :]
            await self._stage.client.truncate(session, len(held.tokens))
        held.turns += turns[common:]
        return [token for _, ids in turns[common:] for token in ids]

    async def _generate(
        self, session: SessionId, held: _Held, prompt: list[TokenId], request: ChatRequest
    ) -> AsyncGenerator[TokenDelta, None]:
        """The deltas of a reply, each compared with the naive one."""
        stage = self._stage
        params = GenerateParams(
            max_tokens=request.max_tokens,
            sampling=request.sampling,
            stop_ids=frozenset((END_OF_TURN,)),
            hints=request.hints,
        )
        check = stage.naive([*held.tokens, *prompt], params)
        async with aclosing(stage.client.generate(session, prompt, params)) as stream:  # type: ignore[type-var]
            async for delta in stream:
                check.take(delta)
                yield delta
        tokens = list(stage.engine.tokens(session)) if stage.engine.is_open(session) else check.tokens
        stage.history.expect(tokens == check.tokens, f"{session} holds other tokens than it was sent")

    async def _forget(self, session: SessionId, held: _Held, num_tokens: int) -> None:
        """Undo a turn that failed or was left."""
        while held.turns and sum(len(ids) for _, ids in held.turns) > num_tokens:
            held.turns.pop()
        if session not in self._held:
            return  # closed meanwhile
        try:
            await self._stage.client.truncate(session, num_tokens)
        except (SessionNotFound, Cancelled):
            self._held.pop(session, None)

    def _read(self, reply: Sequence[TokenId], request: ChatRequest) -> Message:
        """Text or calls, by a hash of the ids; names and arguments are sometimes wrong, as a model's are."""
        number = zlib.crc32(bytes(t % 256 for t in reply))
        names = [tool.name for tool in request.tools] or ["none"]
        num_calls = (0, 1, 1, 2, 3)[number % 5] if request.tools and request.tool_choice != "none" else 0
        calls = []
        for index in range(num_calls):
            draw = number >> (5 * index) & 0xFFFF
            name = "no_such_tool" if draw % 16 == 0 else names[draw % len(names)]
            arguments = {"wrong": 1} if draw % 16 == 1 else {"query": f"q{draw % 7}"}
            calls.append(ToolCall(id=CallId(self._ids.call()), name=name, arguments=arguments))
        return Message(role="assistant", content=_text(reply), tool_calls=tuple(calls))


def _encode(message: Message) -> tuple[TokenId, ...]:
    """Role, the bytes of a shortened content, end of turn. Only messages we did not generate come here."""
    content = message.content.encode()
    if len(content) > 12:
        content = content[:8] + zlib.crc32(content).to_bytes(4, "big")
    return (_ROLES[message.role], *(TokenId(byte) for byte in content), END_OF_TURN)


def _text(ids: Sequence[TokenId]) -> str:
    return "".join(chr(0x4E00 + token) for token in ids)


def _reason(message: Message, reply: Sequence[TokenId]) -> ChatFinishReason:
    if message.tool_calls:
        return "tool_calls"
    return "stop" if reply[-1] == END_OF_TURN else "length"


def _usage(usage: GenerateUsage) -> ChatUsage:
    return ChatUsage(
        num_prompt=usage.num_prompt,
        num_held=usage.num_held,
        num_shared=usage.num_shared,
        num_computed=usage.num_computed,
        num_recomputed=usage.num_recomputed,
        num_generated=usage.num_generated,
        num_steps=usage.num_steps,
        queued_s=usage.queued_s,
        ttft_s=usage.ttft_s,
        total_s=usage.total_s,
    )
