"""Sessions as agents use them directly: ids or text in, ids and text out. Names are the engine's session ids."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol, TypeAlias

import msgspec

from tenuto.ids import SessionId, TokenId
from tenuto.protocol.chat import TokenScore
from tenuto.protocol.engine import FinishReason, GenerateUsage, SamplingParams, SessionStats
from tenuto.protocol.grammar import GrammarSpec
from tenuto.protocol.hints import ExpectedWait, RunHints


class SessionText(msgspec.Struct, frozen=True, kw_only=True):
    """Text to add to a session: tokenised once, by itself."""

    text: str
    control: bool = False  # control tokens' names in it become their ids: for text that is trusted as a whole


SessionInput: TypeAlias = tuple[TokenId, ...] | SessionText


class SessionGenerate(msgspec.Struct, frozen=True, kw_only=True):
    """How to go on with a session."""

    input: SessionInput = ()  # added first
    max_tokens: int | None = None  # None: as many as the context has room for
    sampling: SamplingParams = SamplingParams()
    stop: tuple[str, ...] = ()  # stop strings: text and session end before the first of them
    stop_ids: frozenset[TokenId] = frozenset()  # besides the model's own; the one that comes stays in the session
    ignore_eos: bool = False  # go on past the model's own stop ids
    grammar: GrammarSpec | None = None
    logprobs: int | None = None  # score every sampled token, with so many alternatives
    hints: RunHints = RunHints()


class SessionDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What the session gained. With stop strings, ids wait until no stop string can begin in them."""

    ids: tuple[TokenId, ...]
    text: str  # whole characters, without control tokens
    scores: tuple[TokenScore, ...] = ()  # one for each id, if asked for; ids encoded anew have none


class SessionFinished(msgspec.Struct, frozen=True, kw_only=True):
    """The last event."""

    reason: FinishReason
    stop: str | TokenId | None  # the stop string or id, if that is the reason
    input_ids: tuple[TokenId, ...]  # what the input became
    usage: GenerateUsage


SessionEvent: TypeAlias = SessionDelta | SessionFinished


class SessionContent(msgspec.Struct, frozen=True, kw_only=True):
    """What a session holds."""

    ids: tuple[TokenId, ...]
    text: str  # with control tokens as a template writes them


class SessionClient(Protocol):
    """Sessions beside chat, on the same engine. A session works for one call at a time, chat's turns among them.

    Errors: those of `EngineClient`. A call that raises has changed nothing, but for a `generate` that broke off: the
    session keeps the input and what was generated.
    """

    async def open(self, session: SessionId, *, parent: SessionId | None = None, hints: RunHints = RunHints()) -> None:
        """New session; with a parent, a fork of it."""
        ...

    async def append(
        self, session: SessionId, added: SessionInput, hints: RunHints = RunHints()
    ) -> tuple[TokenId, ...]:
        """Add tokens and compute them; the ids they became."""
        ...

    def generate(self, session: SessionId, request: SessionGenerate) -> AsyncIterator[SessionEvent]:
        """Add tokens, then stream new ones. Closing the iterator early cancels."""
        ...

    async def suspend(self, session: SessionId, wait: ExpectedWait) -> None: ...

    async def truncate(self, session: SessionId, num_tokens: int) -> None: ...

    async def close(self, session: SessionId) -> None:
        """Free the session, whoever opened it; what runs on it ends with Cancelled."""
        ...

    async def stats(self, session: SessionId) -> SessionStats: ...

    async def content(self, session: SessionId) -> SessionContent: ...

    def export(self, session: SessionId) -> AsyncIterator[bytes]:
        """See `EngineClient.export`."""
        ...

    async def import_(self, session: SessionId, pieces: AsyncIterator[bytes], hints: RunHints = RunHints()) -> None: ...
