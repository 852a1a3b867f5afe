"""An engine that keeps sessions as plain token lists and says what it is told to, for tests of the chat room."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec
import numpy as np

from tenuto.clock import Clock, RealClock
from tenuto.errors import (
    Cancelled,
    ContextLengthError,
    InvalidRequest,
    SessionBusy,
    SessionExists,
    SessionFileError,
    SessionNotFound,
    TenutoError,
)
from tenuto.ids import SessionId, TokenId
from tenuto.protocol.counters import EngineCounters, EngineLevels
from tenuto.protocol.engine import (
    EngineInfo,
    FinishReason,
    GenerateParams,
    GenerateUsage,
    PooledStates,
    Pooling,
    SessionStats,
    TokenDelta,
    TokenLogprob,
)
from tenuto.protocol.hints import ExpectedWait, RunHints
from tenuto.testing.scripted_prefixes import ScriptedPrefixes

HIDDEN_SIZE = 8  # of `embed`'s vectors

NextToken: TypeAlias = Callable[[Sequence[TokenId]], TokenId]
Fault: TypeAlias = Callable[[str, int], Exception | None]
"""Given a call's name and how many calls there were before it: the error it raises, or None. A stream asks once for
`generate` before it begins, and once for `delta` before each of its deltas."""


@dataclass
class _Session:
    tokens: list[TokenId] = field(default_factory=list)
    num_computed: int = 0  # tokens with KV: all but the last sampled one
    busy: bool = False
    closed: bool = False
    total_computed: int = 0
    total_reused: int = 0


class ScriptedEngine:
    """An `EngineClient` in memory with the exact session semantics: token lists, fork, truncate, typed errors.

    A call that raises has changed nothing; a stream that fails or is closed early keeps the ids it generated.
    Grammars are recorded, not obeyed; nor is sampling. The log-probability of id t is -(t % 8), with the ids after it
    as alternatives.

    Args:
        script: what to say: id lists, one for each `generate` in order (a call past the end is an AssertionError), or
            a function of all tokens so far that gives the next one. A list that ends without a stop id ends the
            stream with reason `grammar`.
        max_model_tokens: longest session.
        block_size: granularity of the prefix cache.
        ids_per_delta: how many ids a delta carries.
        fault: errors to raise; see `Fault`.

    Attributes:
        num_calls: calls by name.
        params: of every `generate`, in order.
    """

    def __init__(
        self,
        script: Iterable[Sequence[int]] | NextToken,
        *,
        max_model_tokens: int = 2048,
        block_size: int = 16,
        ids_per_delta: int = 1,
        fault: Fault | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._script: NextToken | list[Sequence[int]] = script if callable(script) else list(script)
        self._played = 0
        self._max_model_tokens = max_model_tokens
        self._block_size = block_size
        self._ids_per_delta = ids_per_delta
        self._clock = clock if clock is not None else RealClock()
        self._sessions: dict[SessionId, _Session] = {}
        self._prefixes = ScriptedPrefixes(block_size)
        self._num_asked = 0
        self.fault = fault
        self.num_calls: Counter[str] = Counter()
        self.params: list[GenerateParams] = []
        self.suspends: list[tuple[SessionId, ExpectedWait]] = []

    def say(self, *replies: Sequence[int]) -> None:
        """Add replies to a scripted list."""
        assert isinstance(self._script, list), "the script is a function"
        self._script.extend(replies)

    @property
    def sessions(self) -> dict[SessionId, tuple[TokenId, ...]]:
        """The open sessions and their tokens."""
        return {name: tuple(session.tokens) for name, session in self._sessions.items()}

    def lose(self, session: SessionId) -> None:
        """Forget a session, as an engine that was started again has."""
        del self._sessions[session]

    def lose_prefixes(self) -> None:
        self._prefixes = ScriptedPrefixes(self._block_size)

    def _call(self, name: str) -> None:
        self.num_calls[name] += 1
        self._ask(name)

    def _ask(self, name: str) -> None:
        error = self.fault(name, self._num_asked) if self.fault is not None else None
        self._num_asked += 1
        if error is not None:
            raise error

    def _find(self, session: SessionId) -> _Session:
        if session not in self._sessions:
            raise SessionNotFound(f"session {session} is not open")
        return self._sessions[session]

    def _find_idle(self, session: SessionId) -> _Session:
        found = self._find(session)
        if found.busy:
            raise SessionBusy(f"session {session} is computing for another call; await or cancel that one first")
        return found

    async def info(self) -> EngineInfo:
        self._call("info")
        return EngineInfo(
            model="scripted",
            fingerprint="scripted",
            vocab_size=1 << 31,
            max_model_tokens=self._max_model_tokens,
            block_size=self._block_size,
            num_blocks=self._max_model_tokens // self._block_size,
            kv_bytes_per_token=1,
            device="none",
            precision="none",
            row_invariant=True,
            hidden_size=HIDDEN_SIZE,
        )

    async def open(self, session: SessionId, *, parent: SessionId | None = None, hints: RunHints = RunHints()) -> None:
        self._call("open")
        self._check_new(session)
        opened = _Session()
        if parent is not None:
            source = self._find_idle(parent)
            opened.tokens, opened.num_computed = list(source.tokens), source.num_computed
        self._sessions[session] = opened

    async def append(self, session: SessionId, ids: Sequence[TokenId], hints: RunHints = RunHints()) -> None:
        self._call("append")
        found = self._find_idle(session)
        self._check_room(found, len(ids))
        self._compute(found, ids)
        found.num_computed = len(found.tokens)

    def _check_room(self, session: _Session, num_tokens: int) -> None:
        if len(session.tokens) + num_tokens > self._max_model_tokens:
            raise ContextLengthError(len(session.tokens) + num_tokens, self._max_model_tokens)

    def _compute(self, session: _Session, ids: Sequence[TokenId]) -> GenerateUsage:
        """Add ids and have their KV. At least one token is computed, since its logits are wanted."""
        session.tokens += ids
        num_prompt = len(session.tokens)
        num_held = min(session.num_computed, num_prompt - 1)
        matched = min(self._prefixes.match(session.tokens), num_prompt - 1)
        num_shared = max(0, matched // self._block_size * self._block_size - num_held)
        num_computed = num_prompt - num_held - num_shared
        session.num_computed = num_prompt
        session.total_computed += num_computed
        session.total_reused += num_held + num_shared
        self._prefixes.insert(session.tokens)
        return GenerateUsage(num_prompt=num_prompt, num_held=num_held, num_shared=num_shared, num_computed=num_computed)

    async def generate(
        self, session: SessionId, ids: Sequence[TokenId], params: GenerateParams, *, opening: RunHints | None = None
    ) -> AsyncIterator[TokenDelta]:
        self._call("generate")
        if opening is not None:
            self._check_new(session)
            self._sessions[session] = _Session()
        try:
            found = self._find_idle(session)
            self._check_room(found, len(ids) + (params.max_tokens or 1))
            if not found.tokens and not ids:
                raise InvalidRequest("generate needs at least one token to go on from", "ids")
        except TenutoError:
            if opening is not None:
                del self._sessions[session]
            raise
        self.params.append(params)
        found.busy = True
        try:
            usage = self._compute(found, ids)
            async with aclosing(self._deltas(found, params, usage)) as deltas:
                async for delta in deltas:
                    yield delta
        finally:
            found.busy = False
            found.num_computed = max(0, min(found.num_computed, len(found.tokens) - 1))
            self._prefixes.insert(found.tokens[: found.num_computed])

    async def _deltas(
        self, session: _Session, params: GenerateParams, prompt: GenerateUsage
    ) -> AsyncGenerator[TokenDelta, None]:
        start = self._clock.now()
        max_tokens = params.max_tokens
        if max_tokens is None:
            max_tokens = self._max_model_tokens - prompt.num_prompt
        reply = self._next_reply()
        num_generated = num_steps = 0
        finish: FinishReason | None = None
        while finish is None:
            await asyncio.sleep(0)
            self._ask("delta")
            if session.closed:
                raise Cancelled("the session was closed while it was generating")
            new: list[TokenId] = []
            while finish is None and len(new) < self._ids_per_delta:
                token = reply(session.tokens)
                if token is None:
                    finish = "grammar"
                    break
                new.append(token)
                session.tokens.append(token)
                num_generated += 1
                if token in params.stop_ids:
                    finish = "stop"
                elif num_generated == max_tokens:
                    finish = "length"
            num_steps += 1
            session.num_computed = len(session.tokens) - 1
            session.total_computed += len(new)
            usage = None
            if finish is not None:
                counts = {"num_generated": num_generated, "num_steps": num_steps, "total_s": self._clock.now() - start}
                usage = msgspec.structs.replace(prompt, **counts)
            yield TokenDelta(ids=tuple(new), logprobs=_scores(new, params), finish=finish, usage=usage)

    def _next_reply(self) -> Callable[[Sequence[TokenId]], TokenId | None]:
        """What the next `generate` says: the token after so many others, None at the end."""
        if callable(self._script):
            return self._script
        assert self._played < len(self._script), f"the script has only {len(self._script)} replies"
        self._played += 1
        ids = iter(self._script[self._played - 1])
        return lambda _: next((TokenId(token) for token in ids), None)

    async def embed(self, ids: Sequence[TokenId], pooling: Pooling, hints: RunHints = RunHints()) -> PooledStates:
        """A vector of `HIDDEN_SIZE` numbers: how many of the pooled tokens leave each remainder."""
        self._call("embed")
        if not ids:
            raise InvalidRequest("nothing to embed: no ids were given", "ids")
        if len(ids) > self._max_model_tokens:
            raise ContextLengthError(len(ids), self._max_model_tokens)
        pooled = {"first": ids[:1], "last": ids[-1:], "mean": ids}[pooling]
        vector = np.zeros(HIDDEN_SIZE, dtype=np.float32)
        for token in pooled:
            vector[token % HIDDEN_SIZE] += 1 / len(pooled)
        return PooledStates(vector=vector, usage=GenerateUsage(num_prompt=len(ids), num_computed=len(ids)))

    async def tokens(self, session: SessionId) -> tuple[TokenId, ...]:
        self._call("tokens")
        return tuple(self._find(session).tokens)

    async def export(self, session: SessionId) -> AsyncIterator[bytes]:
        """Tokens and how many of them have KV, in pieces of a few bytes."""
        self._call("export")
        found = self._find_idle(session)
        data = msgspec.json.encode((found.tokens, found.num_computed))
        for first in range(0, len(data), 16):
            yield data[first : first + 16]

    async def import_(self, session: SessionId, pieces: AsyncIterator[bytes], hints: RunHints = RunHints()) -> None:
        self._call("import_")
        self._check_new(session)
        try:
            decoded = msgspec.json.decode(b"".join([p async for p in pieces]), type=tuple[list[int], int])
        except msgspec.DecodeError as error:
            raise SessionFileError(f"not an exported session: {error}") from error
        tokens, num_computed = list(map(TokenId, decoded[0])), decoded[1]
        self._check_room(_Session(), len(tokens))
        self._check_new(session)
        self._sessions[session] = _Session(tokens, num_computed)

    def _check_new(self, session: SessionId) -> None:
        if session in self._sessions:
            raise SessionExists(f"session {session} is already open")

    async def suspend(self, session: SessionId, wait: ExpectedWait) -> None:
        self._call("suspend")
        self._find_idle(session)
        self.suspends.append((session, wait))

    async def truncate(self, session: SessionId, num_tokens: int) -> None:
        self._call("truncate")
        found = self._find_idle(session)
        if not 0 <= num_tokens <= len(found.tokens):
            raise InvalidRequest(f"cannot keep {num_tokens} tokens: the session has {len(found.tokens)}", "num_tokens")
        del found.tokens[num_tokens:]
        found.num_computed = min(found.num_computed, num_tokens)

    async def close(self, session: SessionId) -> None:
        self._call("close")
        self._find(session).closed = True
        del self._sessions[session]

    async def counters(self) -> EngineCounters:
        """The tokens computed for the sessions that are open, and how many those are."""
        self._call("counters")
        num_computed = sum(session.total_computed for session in self._sessions.values())
        return EngineCounters(num_computed_tokens=num_computed, levels=EngineLevels(num_sessions=len(self._sessions)))

    async def release(self, ids: Sequence[TokenId], num_kept: int, hints: RunHints = RunHints()) -> int:
        self._call("release")
        held = [found.tokens[: found.num_computed] for found in self._sessions.values()]
        return self._prefixes.forget(ids, num_kept, held)

    async def stats(self, session: SessionId) -> SessionStats:
        self._call("stats")
        found = self._find(session)
        num_blocks = -(-found.num_computed // self._block_size)
        return SessionStats(
            num_tokens=len(found.tokens),
            num_computed=found.num_computed,
            num_blocks_owned=num_blocks,
            num_blocks_shared=0,
            kv_bytes=num_blocks * self._block_size,
            total_computed_tokens=found.total_computed,
            total_reused_tokens=found.total_reused,
            waiting_s=0.0,
            running_s=0.0,
            suspended_s=0.0,
        )


def _scores(ids: Sequence[TokenId], params: GenerateParams) -> tuple[TokenLogprob, ...]:
    """One for each id, if asked for."""
    if params.logprobs is None:
        return ()
    places = range(1, params.logprobs + 1)
    return tuple(
        TokenLogprob(logprob=-float(t % 8), top=tuple((TokenId(t + place), -1.0 - place) for place in places))
        for t in ids
    )
