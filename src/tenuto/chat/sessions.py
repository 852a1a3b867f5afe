"""Sessions that agents work on directly, with text where they want it: a `SessionClient`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractContextManager, aclosing
from typing import Protocol, cast

import anyio

from tenuto.chat.local import ChatLimits
from tenuto.chat.session_generation import SessionGeneration
from tenuto.chat.session_text import SessionTextReader
from tenuto.chat.spent import OnBrokenOff, nobody
from tenuto.errors import ContextLengthError, InvalidRequest
from tenuto.ids import SessionId, TokenId
from tenuto.offload import Preparation
from tenuto.protocol.engine import EngineClient, GenerateParams, SessionStats
from tenuto.protocol.hints import ExpectedWait, RunHints
from tenuto.protocol.sessions import (
    SessionContent,
    SessionEvent,
    SessionGenerate,
    SessionInput,
)
from tenuto.text.marked import MarkedText, choose_mark
from tenuto.text.tokenizer import Tokenizer


class Lender(Protocol):
    """Who else works on the sessions: chat."""

    def lend(self, session: SessionId) -> AbstractContextManager[None]:
        """For the block the session is ours. Raises SessionBusy."""
        ...

    def forget(self, session: SessionId) -> None:
        """The session is about to be closed."""
        ...


class LocalSessionClient:
    """Sessions over an engine, shared with chat: whoever works on one has it alone meanwhile.

    Reading is free: what the engine answers between two calls of a turn of chat is what the session holds then.
    """

    def __init__(
        self,
        engine: EngineClient,
        tokenizer: Tokenizer,
        chat: Lender,
        *,
        limits: ChatLimits = ChatLimits(),
        on_broken_off: OnBrokenOff = nobody,
    ) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._chat = chat
        self._limits = limits
        self._on_broken_off = on_broken_off
        self._encoding = Preparation("tenuto-sessions", limits.prepare_threads, limits.prepare_s)

    async def open(self, session: SessionId, *, parent: SessionId | None = None, hints: RunHints = RunHints()) -> None:
        with self._chat.lend(session):
            await self._engine.open(session, parent=parent, hints=hints)

    async def append(
        self, session: SessionId, added: SessionInput, hints: RunHints = RunHints()
    ) -> tuple[TokenId, ...]:
        with self._chat.lend(session):
            ids, _ = await self._read(session, added)
            await self._engine.append(session, ids, hints)
            return ids

    async def generate(self, session: SessionId, request: SessionGenerate) -> AsyncGenerator[SessionEvent, None]:
        if not all(request.stop):
            raise InvalidRequest("stop holds an empty string, which would end every text", "stop")
        with self._chat.lend(session):
            ids, last = await self._read(session, request.input)
            reader = SessionTextReader(self._tokenizer, request.stop, self._tokenizer.position_after(last))
            generation = SessionGeneration(self._engine, session, ids, self._params(request), reader)
            try:
                async for event in generation.events(may_break_off=bool(request.stop)):
                    yield event
            finally:
                generation.tell(self._on_broken_off)
                with anyio.move_on_after(self._limits.cleanup_s, shield=True):
                    await generation.stop()

    async def suspend(self, session: SessionId, wait: ExpectedWait) -> None:
        with self._chat.lend(session):
            await self._engine.suspend(session, wait)

    async def truncate(self, session: SessionId, num_tokens: int) -> None:
        with self._chat.lend(session):
            await self._engine.truncate(session, num_tokens)

    async def close(self, session: SessionId) -> None:
        self._chat.forget(session)
        await self._engine.close(session)

    async def stats(self, session: SessionId) -> SessionStats:
        return await self._engine.stats(session)

    async def content(self, session: SessionId) -> SessionContent:
        ids = await self._engine.tokens(session)
        return SessionContent(ids=ids, text=self._tokenizer.decode(ids))

    async def export(self, session: SessionId) -> AsyncGenerator[bytes, None]:
        async with aclosing(cast("AsyncGenerator[bytes, None]", self._engine.export(session))) as pieces:
            async for piece in pieces:
                yield piece

    async def import_(self, session: SessionId, pieces: AsyncIterator[bytes], hints: RunHints = RunHints()) -> None:
        with self._chat.lend(session):
            await self._engine.import_(session, pieces, hints)

    def _params(self, request: SessionGenerate) -> GenerateParams:
        own = frozenset() if request.ignore_eos else self._tokenizer.eos_ids
        return GenerateParams(
            max_tokens=request.max_tokens,
            sampling=request.sampling,
            stop_ids=request.stop_ids | own,
            grammar=request.grammar,
            logprobs=request.logprobs,
            hints=request.hints,
        )

    async def _read(self, session: SessionId, added: SessionInput) -> tuple[tuple[TokenId, ...], Sequence[TokenId]]:
        """The ids to add, and what the session ends with then: its last id, or nothing if it is empty."""
        if isinstance(added, tuple) and added:
            return added, added[-1:]
        held = await self._engine.tokens(session)
        if isinstance(added, tuple):
            return (), held[-1:]
        tokenizer, info = self._tokenizer, await self._engine.info()
        least = len(held) - (-len(added.text) // tokenizer.max_token_bytes)
        if least > info.max_model_tokens:  # encoding megabytes takes seconds
            raise ContextLengthError(least, info.max_model_tokens, "the session with this text", "append less")

        def encode() -> tuple[TokenId, ...]:
            text = MarkedText(added.text, choose_mark([added.text])) if added.control else added.text
            return tuple(tokenizer.encode(text, tokenizer.position_after(held)))

        ids = await self._encoding.run(encode, "the text took longer than {limit} to encode; send less", "text")
        if not held:
            ids = tokenizer.opened(ids)
        return ids, (*held[-1:], *ids)[-1:]
