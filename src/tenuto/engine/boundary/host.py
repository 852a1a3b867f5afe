"""The side of a boundary where the engine is: answers what is asked over a link, by an `EngineClient`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, cast

import msgspec
import structlog

from tenuto.clock import Clock
from tenuto.engine.boundary import messages as m
from tenuto.engine.boundary.errors import internal_error, pack_error
from tenuto.engine.boundary.limits import BoundaryLimits
from tenuto.engine.boundary.link import Link
from tenuto.engine.boundary.outbox import Outbox
from tenuto.errors import Cancelled, EngineClosed, QueueFull, TenutoError
from tenuto.protocol.engine import EngineClient

_log = structlog.get_logger("tenuto.engine")


class _Served:
    """One call under way."""

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.credits = asyncio.Semaphore(m.WINDOW_PIECES)  # of an export: pieces that may be sent
        self.pieces: asyncio.Queue[bytes] = asyncio.Queue(m.WINDOW_PIECES + 1)  # of an import


class EngineHost:
    """Answers over `link`, which whoever makes a host connects to a transport; then `start` with the engine.

    Order: frames are handled in the order in which they arrive, each call in a task of its own. asyncio starts tasks,
    and wakes cancelled ones, in the order in which that was asked for; so a call finds done whatever the calls and
    cancels before it do without waiting, as if all had been made here.

    Args:
        on_load: is told the settings of the first message, `Load`.
        on_lost: is told once that the caller is gone, or has sent something that is no message.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        on_load: Callable[[dict[str, Any]], None] = lambda _: None,
        on_lost: Callable[[EngineClosed | None], None] = lambda _: None,
        limits: BoundaryLimits = BoundaryLimits(),
    ) -> None:
        self.link: Link[m.ToHost] = Link(m.decode_to_host, self._receive, self._link_lost, self._resumed)
        self._clock = clock
        self._on_load = on_load
        self._on_lost = on_lost
        self._limits = limits
        self._outbox = Outbox(self.link)
        self._engine: EngineClient | None = None
        self._served: dict[int, _Served] = {}
        self._beating: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Be heard from now on."""
        self._beating = asyncio.create_task(self._beat(), name="tenuto-boundary-heartbeat")

    async def start(self, engine: EngineClient) -> None:
        """Calls are answered from now on."""
        info = await engine.info()
        self._engine = engine
        self._outbox.add(m.Ready(info))

    def refuse(self, error: TenutoError) -> None:
        """Tell the caller that there is no engine, or no more, and why; the link is closed behind it."""
        self._outbox.add(m.NotReady(pack_error(error)))
        self._outbox.flush()
        self.link.close()

    async def stop(self) -> None:
        """Cancel what is under way."""
        tasks = [served.task for served in self._served.values() if served.task is not None]
        if self._beating is not None:
            tasks.append(self._beating)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=self._limits.answer_s)

    # Inside

    def _receive(self, message: m.ToHost) -> None:
        match message:
            case m.Ask():
                self._accept(message)
            case m.Cancel():
                served = self._served.get(message.call)
                if served is not None and served.task is not None:
                    served.task.cancel()
            case m.Piece():
                self._take_piece(message)
            case m.Credit():
                served = self._served.get(message.call)
                if served is not None:
                    for _ in range(min(message.num_pieces, m.WINDOW_PIECES)):
                        served.credits.release()
            case m.Load():
                self._on_load(message.settings)

    def _accept(self, ask: m.Ask) -> None:
        engine, number = self._engine, ask.call
        if engine is None or number in self._served:
            self.link.fail(
                EngineClosed("the boundary to the engine is broken: a call before the engine runs, or twice")
            )
            return
        if len(self._served) >= 2 * self._limits.max_calls:
            self._outbox.add(m.Failed(number, pack_error(QueueFull("too many calls to the engine; try again later"))))
            return
        served = self._served[number] = _Served()
        served.task = asyncio.create_task(self._serve(engine, ask, served), name=f"tenuto-call-{number}")
        # Not at the end of the coroutine: one that is cancelled before it begins has none.
        served.task.add_done_callback(lambda _: self._served.pop(number))

    async def _serve(self, engine: EngineClient, ask: m.Ask, served: _Served) -> None:
        try:
            value = await self._answer(engine, ask.call, m.decode_question(ask), served)
        except TenutoError as error:
            self._outbox.add(m.Failed(ask.call, pack_error(error)))
        except Exception as error:  # noqa: BLE001 - logged, and told as what it is
            _log.exception("a call to the engine failed")
            self._outbox.add(m.Failed(ask.call, pack_error(internal_error(error))))
        else:
            self._outbox.add(m.Answer(ask.call, value))

    async def _answer(self, engine: EngineClient, call: int, question: m.Question, served: _Served) -> msgspec.Raw:
        match question:
            case m.Generate(session, ids, params, opening):
                stream = engine.generate(session, ids, params, opening=opening)
                async with aclosing(cast(Any, stream)) as deltas:
                    async for delta in deltas:
                        self._outbox.add_delta(call, delta)
            case m.Append(session, ids, hints):
                await engine.append(session, ids, hints)
            case m.Embed(ids, pooling, hints):
                return m.raw(m.pack_pooled(await engine.embed(ids, pooling, hints)))
            case m.Open(session, parent, hints):
                await engine.open(session, parent=parent, hints=hints)
            case m.Suspend(session, wait):
                await engine.suspend(session, wait)
            case m.Truncate(session, num_tokens):
                await engine.truncate(session, num_tokens)
            case m.Close(session):
                await engine.close(session)
            case m.Release(ids, num_kept, hints):
                return m.raw(await engine.release(ids, num_kept, hints))
            case m.Stats(session):
                return m.raw(await engine.stats(session))
            case m.Tokens(session):
                return m.raw(await engine.tokens(session))
            case m.Counters():
                return m.raw(await engine.counters())
            case m.Export(session):
                await self._export(engine.export(session), call, served)
            case m.Import(session, hints):
                await engine.import_(session, self._pieces(call, served), hints)
        return m.NOTHING

    async def _export(self, pieces: AsyncIterator[bytes], call: int, served: _Served) -> None:
        async with aclosing(cast(Any, pieces)) as stream:
            async for piece in stream:
                for start in range(0, len(piece), m.PIECE_BYTES):
                    try:
                        async with asyncio.timeout(self._limits.piece_s):
                            await served.credits.acquire()
                    except TimeoutError as error:
                        raise Cancelled(f"nobody took a piece of the session for {self._limits.piece_s:g} s") from error
                    self._outbox.add(m.Piece(call, piece[start : start + m.PIECE_BYTES]))

    async def _pieces(self, call: int, served: _Served) -> AsyncIterator[bytes]:
        while True:
            try:
                async with asyncio.timeout(self._limits.piece_s):
                    piece = await served.pieces.get()
            except TimeoutError as error:
                raise Cancelled(f"no further piece of the session came for {self._limits.piece_s:g} s") from error
            if not piece:
                return
            self._outbox.add(m.Credit(call, 1))
            yield piece

    def _take_piece(self, piece: m.Piece) -> None:
        served = self._served.get(piece.call)
        if served is None:  # the import has failed already
            return
        if served.pieces.full():
            self.link.fail(EngineClosed("the boundary to the engine is broken: more pieces than there is room for"))
            return
        served.pieces.put_nowait(piece.data)

    async def _beat(self) -> None:
        """Be heard, and tell when the engine has stopped by itself, which only a bug makes it do."""
        while True:
            self._outbox.add(m.Heartbeat())
            await self._clock.sleep(self._limits.heartbeat_s)
            if self._engine is not None:
                try:
                    await self._engine.counters()
                except EngineClosed as error:
                    bug = None if error.__cause__ is None else error.__cause__.__cause__
                    _log.error("the engine has stopped", reason=str(error), exc_info=bug)
                    self.refuse(error)
                    return

    def _resumed(self) -> None:
        self._outbox.flush()

    def _link_lost(self, failure: EngineClosed | None) -> None:
        if failure is not None:
            _log.error("the boundary to the engine's callers is broken", reason=str(failure))
        self._on_lost(failure)
