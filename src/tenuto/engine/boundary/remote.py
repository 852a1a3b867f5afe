"""An engine on the other side of a boundary, for those who call it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from tenuto.clock import Clock
from tenuto.engine.boundary import messages as m
from tenuto.engine.boundary.calls import Call
from tenuto.engine.boundary.errors import unpack_error
from tenuto.engine.boundary.frames import MAX_FRAME_BYTES
from tenuto.engine.boundary.limits import BoundaryLimits
from tenuto.engine.boundary.link import Link
from tenuto.engine.door import check_ids
from tenuto.errors import EngineClosed, InvalidRequest, QueueFull, TenutoError
from tenuto.ids import SessionId, TokenId
from tenuto.protocol.counters import EngineCounters
from tenuto.protocol.engine import (
    EngineInfo,
    GenerateParams,
    PooledStates,
    Pooling,
    SessionStats,
    TokenDelta,
)
from tenuto.protocol.hints import ExpectedWait, RunHints

T = TypeVar("T")
_FEW = 2 * m.WINDOW_PIECES + 2  # news of a call that is no stream of tokens


class RemoteEngineClient:
    """Implements `EngineClient` over a `Link` to an `EngineHost`. All calls run on one event loop.

    Whoever makes one connects `link` to a transport, and awaits `ready` before the first call. When the link ends,
    for whatever reason, every call that is under way and every later one raises EngineClosed, naming what happened.

    Args:
        explain: how the other side came to its end, in words, e.g. "it was killed by signal 9"; asked once, when the
            link has ended without a reason of its own.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        explain: Callable[[], Awaitable[str]] | None = None,
        limits: BoundaryLimits = BoundaryLimits(),
    ) -> None:
        self.link: Link[m.FromHost] = Link(m.decode_from_host, self._receive, self._link_lost)
        self._clock = clock
        self._explain = explain
        self._limits = limits
        self._calls: dict[int, Call] = {}
        self._num_calls = 0
        self._info: EngineInfo | None = None
        self._news = asyncio.Event()  # ready, or closed
        self._ended = asyncio.Event()
        self._closed: TenutoError | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def ready(self) -> EngineInfo:
        """Wait until the engine runs. Raises what kept it from starting, or EngineClosed."""
        watch = asyncio.create_task(self._watch(), name="tenuto-boundary-watch")
        self._tasks.add(watch)
        await self._news.wait()
        if self._info is None:
            assert self._closed is not None
            raise self._closed
        return self._info

    def load(self, settings: dict[str, Any]) -> None:
        """Tell the other side what engine to start."""
        self.link.write([m.encode(m.Load(settings))])

    @property
    def is_open(self) -> bool:
        return self._info is not None and self._closed is None

    async def ended(self) -> EngineClosed:
        """Wait for the end, whatever brings it; the reason."""
        await self._ended.wait()
        return self._reason()

    async def aclose(self) -> None:
        """End the link; calls under way end with EngineClosed. The other side then ends too."""
        self._close(EngineClosed("the engine was stopped"))
        self.link.close()
        for task in self._tasks:
            task.cancel()

    # EngineClient

    async def info(self) -> EngineInfo:
        self._check_open()
        assert self._info is not None
        return self._info

    async def open(self, session: SessionId, *, parent: SessionId | None = None, hints: RunHints = RunHints()) -> None:
        await self._ask(m.Open(session, parent, hints), type(None))

    async def append(self, session: SessionId, ids: Sequence[TokenId], hints: RunHints = RunHints()) -> None:
        await self._compute(m.Append(session, list(ids), hints), type(None))

    async def generate(
        self, session: SessionId, ids: Sequence[TokenId], params: GenerateParams, *, opening: RunHints | None = None
    ) -> AsyncGenerator[TokenDelta, None]:
        # Each delta but the last holds an id, and a session no more ids than the context.
        max_news = 2 + (self._info.max_model_tokens if self._info is not None else 0)
        call, frame = self._begin(m.Generate(session, list(ids), params, opening), max_news)
        try:
            await self._send(call, frame)
            while not isinstance(news := await call.take(), m.Answer):
                assert isinstance(news, TokenDelta)
                yield news
        finally:
            self._end(call)

    async def embed(self, ids: Sequence[TokenId], pooling: Pooling, hints: RunHints = RunHints()) -> PooledStates:
        return m.unpack_pooled(await self._compute(m.Embed(list(ids), pooling, hints), m.Pooled))

    async def suspend(self, session: SessionId, wait: ExpectedWait) -> None:
        await self._ask(m.Suspend(session, wait), type(None))

    async def truncate(self, session: SessionId, num_tokens: int) -> None:
        await self._ask(m.Truncate(session, num_tokens), type(None))

    async def close(self, session: SessionId) -> None:
        await self._ask(m.Close(session), type(None))

    async def release(self, ids: Sequence[TokenId], num_kept: int, hints: RunHints = RunHints()) -> int:
        return await self._ask(m.Release(list(ids), num_kept, hints), int)

    async def stats(self, session: SessionId) -> SessionStats:
        return await self._ask(m.Stats(session), SessionStats)

    async def tokens(self, session: SessionId) -> tuple[TokenId, ...]:
        return tuple(await self._ask(m.Tokens(session), list[TokenId]))

    async def counters(self) -> EngineCounters:
        return await self._ask(m.Counters(), EngineCounters)

    async def export(self, session: SessionId) -> AsyncGenerator[bytes, None]:
        call, frame = self._begin(m.Export(session), _FEW)
        try:
            await self._send(call, frame)
            while not isinstance(news := await call.take(), m.Answer):
                assert isinstance(news, m.Piece)
                self.link.write([m.encode(m.Credit(call.number, 1))])
                yield news.data
        finally:
            self._end(call)

    async def import_(self, session: SessionId, pieces: AsyncIterator[bytes], hints: RunHints = RunHints()) -> None:
        call, frame = self._begin(m.Import(session, hints), _FEW)
        try:
            await self._send(call, frame)
            num_free = m.WINDOW_PIECES
            async for piece in pieces:
                for start in range(0, len(piece), m.PIECE_BYTES):
                    while num_free == 0 or call.has_news:
                        if isinstance(news := await call.take(), m.Answer):
                            return  # it needed no more
                        assert isinstance(news, m.Credit)
                        num_free += news.num_pieces
                    num_free -= 1
                    self._write_piece(call, piece[start : start + m.PIECE_BYTES])
            self._write_piece(call, b"")
            while not isinstance(await call.take(), m.Answer):
                continue  # credits that nobody needs any more
        finally:
            self._end(call)

    # Inside

    async def _ask(self, question: m.Question, kind: type[T]) -> T:
        """A call that computes nothing: answered at once, or the other side is lost."""
        limit = self._limits.answer_s
        try:
            async with asyncio.timeout(limit):
                return await self._compute(question, kind)
        except TimeoutError as error:
            name = type(question).__name__.lower()
            self.link.fail(EngineClosed(f"the engine did not answer the call {name!r} within {limit:g} s"))
            raise EngineClosed(f"the engine did not answer within {limit:g} s") from error

    async def _compute(self, question: m.Question, kind: type[T]) -> T:
        """A call that may take as long as it must: the watch ends it if the other side is no longer heard of."""
        call, frame = self._begin(question, _FEW)
        try:
            await self._send(call, frame)
            answer = await call.take()
            assert isinstance(answer, m.Answer)
            return msgspec.msgpack.decode(answer.value, type=kind)
        finally:
            self._end(call)

    def _begin(self, question: m.Question, max_news: int) -> tuple[Call, bytes]:
        """Register a call and encode it. Raises EngineClosed, QueueFull, InvalidRequest; then nothing has happened."""
        self._check_open()
        # Calls that set something free have room of their own: they are what empties a full boundary.
        frees = isinstance(question, m.Close | m.Truncate | m.Suspend | m.Release)
        if len(self._calls) >= self._limits.max_calls * (2 if frees else 1):
            raise QueueFull(f"{self._limits.max_calls} calls to the engine are under way already; try again later")
        number = self._num_calls + 1
        try:
            payload = m.encode(m.Ask(number, m.raw(question)))
        except OverflowError as error:
            assert self._info is not None
            check_ids(getattr(question, "ids", ()), self._info.vocab_size)
            raise InvalidRequest(f"the call holds a number that no engine accepts ({error})") from error
        except (TypeError, UnicodeEncodeError) as error:
            raise InvalidRequest(f"the call holds a value that no engine accepts ({error})") from error
        if len(payload) > MAX_FRAME_BYTES:
            raise InvalidRequest(f"the call takes {len(payload)} bytes, and the engine accepts {MAX_FRAME_BYTES}")
        self._num_calls = number
        call = self._calls[number] = Call(number, max_news, frees=frees)
        return call, payload

    async def _send(self, call: Call, payload: bytes) -> None:
        if self.link.is_paused and not call.frees:  # those are short, and as few as the calls there may be
            await self.link.writable(self._limits.answer_s)
        call.is_sent = True
        self.link.write([payload])

    def _write_piece(self, call: Call, data: bytes) -> None:
        self.link.write([m.encode(m.Piece(call.number, data))])

    def _end(self, call: Call) -> None:
        """Whoever waited has what it wanted, or wants it no more. Frames keep their order, so that whatever is asked
        from now on finds the call ended."""
        del self._calls[call.number]
        if call.is_sent and not call.has_ended and not call.frees:
            self.link.write([m.encode(m.Cancel(call.number))])

    def _receive(self, message: m.FromHost) -> None:
        match message:
            case m.Deltas():
                for number, delta in message.items:
                    self._push(number, delta)
            case m.Answer() | m.Piece() | m.Credit():
                self._push(message.call, message)
            case m.Failed():
                self._push(message.call, unpack_error(message.error))
            case m.Ready():
                self._info = message.info
                self._news.set()
            case m.NotReady():
                self._close(unpack_error(message.error))
            case m.Heartbeat():
                pass

    def _push(self, number: int, news: TokenDelta | m.Answer | m.Piece | m.Credit | TenutoError) -> None:
        call = self._calls.get(number)  # None: it was given up
        if call is not None and not call.push(news):
            self.link.fail(EngineClosed("the boundary to the engine is broken: more arrived than a call may give"))

    async def _watch(self) -> None:
        """Ends the link if the host falls silent. Times are counted in heartbeats, not read from the clock: when this
        process itself has been stopped for a while, its host must not look silent."""
        seen, num_silent = -1, 0
        while self._closed is None:
            await self._clock.sleep(self._limits.heartbeat_s)
            num_silent = num_silent + 1 if seen == self.link.num_received else 0
            seen = self.link.num_received
            limit = self._limits.silence_s if self._info is not None else self._limits.loading_silence_s
            if num_silent * self._limits.heartbeat_s >= limit:
                self.link.fail(EngineClosed(f"the engine's process has not been heard of for {limit:g} s"))
                return

    def _link_lost(self, failure: EngineClosed | None) -> None:
        if self._closed is not None:
            return
        if failure is not None or self._explain is None:
            self._close(failure or EngineClosed("the engine has gone"))
            return
        task = asyncio.create_task(self._explain_end(), name="tenuto-boundary-end")
        self._tasks.add(task)

    async def _explain_end(self) -> None:
        why = "it is not known how"
        assert self._explain is not None
        try:
            why = await self._explain()
        finally:
            self._close(EngineClosed(f"the engine's process has ended: {why}"))

    def _check_open(self) -> None:
        if self._closed is not None:
            raise self._reason()
        if self._info is None:
            raise EngineClosed("the engine has not been started")

    def _reason(self) -> EngineClosed:
        """A fresh error for each who is told: a traceback belongs to one raise."""
        assert self._closed is not None
        error = EngineClosed(str(self._closed))
        error.__cause__ = self._closed
        return error

    def _close(self, reason: TenutoError) -> None:
        if self._closed is not None:
            return
        self._closed = reason
        for call in list(self._calls.values()):
            call.push(self._reason())
        self._news.set()
        self._ended.set()
