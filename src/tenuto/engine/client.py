"""The engine behind `EngineClient`, in this process: one step-loop task around the synchronous core."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from tenuto.clock import Clock
from tenuto.engine.batch import Batch, Delta, Executor, Output
from tenuto.engine.engine import Engine
from tenuto.engine.mailbox import Mailbox
from tenuto.engine.session_transfer import SessionTransfer, Slots
from tenuto.errors import EngineClosed, GrammarError, StepFailed, TenutoError
from tenuto.ids import RequestId, SessionId, TokenId
from tenuto.offload import Offload
from tenuto.protocol.counters import EngineCounters
from tenuto.protocol.engine import EngineInfo, GenerateParams, PooledStates, Pooling, SessionStats, TokenDelta
from tenuto.protocol.grammar import GrammarCompiler, GrammarSpec, TokenGrammar
from tenuto.protocol.hints import ExpectedWait, RunHints

T = TypeVar("T")


class ClientOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the client drives the core."""

    inline: bool = False  # no threads: execute and compile on the event loop (simulation)
    step_cost: Callable[[Batch], float] | None = None  # clock seconds a step takes; slept on the clock (simulation)
    compile_timeout_s: float = 10.0
    stop_timeout_s: float = 30.0  # how long `stop` waits for the step in flight


class LocalEngineClient:
    """Implements `EngineClient`. An async context manager; calls are answered between start and stop.

    All calls run on one event loop, so the core needs no locks; only `execute` and grammar compilation run in
    worker threads. A slow consumer does not hold up the engine: its deltas queue up, bounded by `max_tokens`.
    """

    def __init__(
        self,
        engine: Engine,
        executor: Executor,
        clock: Clock,
        info: EngineInfo,
        *,
        compiler: GrammarCompiler | None = None,
        options: ClientOptions = ClientOptions(),
    ) -> None:
        self._engine = engine
        self._executor = executor
        self._clock = clock
        self._info = info
        self._compiler = compiler
        self._options = options
        self._streams: dict[RequestId, Mailbox[Delta]] = {}
        self._wake = asyncio.Event()
        self._stopping = False
        self._num_hidden = 0  # sessions of our own so far
        self._transfer = SessionTransfer(engine, executor, clock, info, self)
        self._between_steps: list[tuple[Callable[[], None], asyncio.Future[Any]]] = []  # once no step is in flight
        self._loop: asyncio.Task[None] | None = None
        self._step_thread: ThreadPoolExecutor | None = None
        self._compiling = Offload("tenuto-grammar", max_threads=2)
        self._closed: EngineClosed | None = EngineClosed("the engine has not been started")

    async def __aenter__(self) -> LocalEngineClient:
        assert self._loop is None, "the client is started already"
        if not self._options.inline:
            self._step_thread = ThreadPoolExecutor(1, "tenuto-step")
        self._closed = None
        self._loop = asyncio.create_task(self._run(), name="tenuto-step-loop")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """End all requests with EngineClosed, and wait for the step in flight, up to the deadline.

        If the step loop had died of a bug, that is raised here.
        """
        if self._loop is None or self._stopping:
            return
        self._stopping = True
        self._close(EngineClosed("the engine was stopped"))
        self._wake.set()
        done, _ = await asyncio.wait([self._loop], timeout=self._options.stop_timeout_s)
        if not done:
            self._loop.cancel()
        if self._step_thread is not None:
            self._step_thread.shutdown(wait=False, cancel_futures=True)
        if done and not self._loop.cancelled():
            self._loop.result()

    # EngineClient

    async def info(self) -> EngineInfo:
        return self._info

    async def open(self, session: SessionId, *, parent: SessionId | None = None, hints: RunHints = RunHints()) -> None:
        self._check_open()
        self._engine.open(session, self._clock.now(), parent=parent, hints=hints)

    async def append(self, session: SessionId, ids: Sequence[TokenId], hints: RunHints = RunHints()) -> None:
        self._check_open()
        request = self._engine.append(session, ids, self._clock.now(), hints)
        async with aclosing(self._deltas(request)) as deltas:
            async for _ in deltas:
                pass

    async def generate(
        self, session: SessionId, ids: Sequence[TokenId], params: GenerateParams, *, opening: RunHints | None = None
    ) -> AsyncGenerator[TokenDelta, None]:
        self._check_open()
        grammar = None if params.grammar is None else await self._compile(params.grammar)
        self._check_open()
        if opening is not None:
            self._engine.open(session, self._clock.now(), hints=opening)
        try:
            request = self._engine.generate(session, ids, params, self._clock.now(), grammar)
        except TenutoError:
            if opening is not None:
                self._engine.close(session, self._clock.now())
            raise
        async with aclosing(self._deltas(request)) as deltas:  # leaving early cancels it at once
            async for delta in deltas:
                if delta.tokens is not None:
                    yield delta.tokens

    async def embed(self, ids: Sequence[TokenId], pooling: Pooling, hints: RunHints = RunHints()) -> PooledStates:
        self._check_open()
        self._num_hidden += 1
        session = SessionId(f"\0embed-{self._num_hidden}")  # a name that no caller's session has
        self._engine.open(session, self._clock.now(), hints=hints)
        try:
            request = self._engine.embed(session, ids, pooling, self._clock.now(), hints)
            async with aclosing(self._deltas(request)) as deltas:
                async for delta in deltas:
                    if delta.done and delta.tokens is not None and delta.pooled is not None:
                        assert delta.tokens.usage is not None
                        return PooledStates(vector=delta.pooled, usage=delta.tokens.usage)
            raise AssertionError("an embed request ended without a vector")
        finally:
            self._engine.close(session, self._clock.now())

    async def suspend(self, session: SessionId, wait: ExpectedWait) -> None:
        self._check_open()
        self._engine.suspend(session, wait, self._clock.now())

    async def truncate(self, session: SessionId, num_tokens: int) -> None:
        self._check_open()
        self._engine.truncate(session, num_tokens, self._clock.now())

    async def close(self, session: SessionId) -> None:
        self._check_open()
        self._engine.close(session, self._clock.now())
        self._deliver(self._engine.take_deltas())

    async def release(self, ids: Sequence[TokenId], num_kept: int, hints: RunHints = RunHints()) -> int:
        self._check_open()
        return self._engine.release(ids, num_kept, hints)

    async def stats(self, session: SessionId) -> SessionStats:
        self._check_open()
        return self._engine.stats(session, self._clock.now())

    async def tokens(self, session: SessionId) -> tuple[TokenId, ...]:
        self._check_open()
        return self._engine.tokens(session)

    async def export(self, session: SessionId) -> AsyncGenerator[bytes, None]:
        self._check_open()
        self._num_hidden += 1
        async with aclosing(self._transfer.export(session, self._num_hidden)) as pieces:
            async for piece in pieces:
                yield piece

    async def import_(self, session: SessionId, pieces: AsyncIterator[bytes], hints: RunHints = RunHints()) -> None:
        self._check_open()
        self._num_hidden += 1
        await self._transfer.import_(session, pieces, hints, self._num_hidden)

    async def counters(self) -> EngineCounters:
        self._check_open()
        return msgspec.structs.replace(self._engine.counters(), levels=self._engine.levels())

    async def beside_steps(self, choose: Callable[[], Slots | None], act: Callable[[Slots], T]) -> T | None:
        """See `StepLoop`: for SessionTransfer."""
        self._check_open()
        chosen: asyncio.Future[asyncio.Future[T] | None] = asyncio.get_running_loop().create_future()

        def begin() -> None:
            # Both in one go: a step that is scheduled later also computes later.
            try:
                slots = choose()
                chosen.set_result(None if slots is None else self._on_executor(lambda: act(slots)))
            except Exception as error:  # noqa: BLE001 - the caller's, who waits for it
                chosen.set_exception(error)

        if self._engine.is_in_flight:
            self._between_steps.append((begin, chosen))
        else:
            begin()
        acting = await chosen
        if acting is None:
            return None
        outcome: T = await self._outcome(acting)
        return outcome

    # Inside

    def _on_executor(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """After all that the executor was asked for before."""
        loop = asyncio.get_running_loop()
        if self._step_thread is not None:
            return loop.run_in_executor(self._step_thread, work)
        done: asyncio.Future[T] = loop.create_future()
        done.set_result(work())
        return done

    async def _outcome(self, acting: asyncio.Future[T]) -> T:
        try:
            return await acting
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if acting.cancelled() and task is not None and not task.cancelling():
                self._check_open()  # the executor's thread was stopped, nobody cancelled the caller
            raise
        except TenutoError:
            raise
        except Exception as error:
            raise StepFailed(f"the device failed to read or write KV: {error}") from error

    def _check_open(self) -> None:
        if self._closed is not None:
            raise EngineClosed(*self._closed.args) from self._closed

    async def _deltas(self, request: RequestId) -> AsyncGenerator[Delta, None]:
        """The deltas of a request up to the last; raises its error. Leaving early cancels it at once."""
        stream = self._streams[request] = Mailbox[Delta]()
        self._deliver(self._engine.take_deltas())
        self._wake.set()
        try:
            while True:
                delta = await stream.take()
                if delta.error is not None:
                    raise delta.error
                yield delta
                if delta.done:
                    return
        finally:
            del self._streams[request]
            self._engine.cancel(request, self._clock.now())

    async def _compile(self, spec: GrammarSpec) -> TokenGrammar:
        compiler = self._compiler
        if compiler is None:
            raise GrammarError("this engine has no grammar compiler")
        if self._options.inline:
            return compiler.compile(spec)
        limit = self._options.compile_timeout_s
        try:
            return await self._compiling.run(lambda: compiler.compile(spec), limit)
        except TimeoutError as error:
            raise GrammarError(f"the grammar took longer than {limit} s to compile; make it simpler") from error

    async def _run(self) -> None:
        """The step loop: schedule, execute, commit, until stopped; sleeps while there is nothing to compute."""
        try:
            while not self._stopping:
                batch = self._engine.schedule(self._clock.now())
                self._deliver(self._engine.take_deltas())
                if batch is not None:
                    self._deliver(await self._step(batch))
                    self._begin_between_steps()
                    await self._let_news_out()
                else:
                    self._wake.clear()
                    await self._wake.wait()
        except BaseException as error:
            # A bug in the core, or this task was cancelled: nobody may be left waiting for a loop that is gone.
            closed = EngineClosed("the engine stopped because of an internal error")
            closed.__cause__ = error
            self._close(closed)
            raise

    async def _let_news_out(self) -> None:
        """Before the next step takes the processors: one pass for whoever waits for a delta, and one for what that one
        writes to others. They would otherwise wait for a processor, on a small machine for milliseconds."""
        if self._step_thread is not None:
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    def _begin_between_steps(self) -> None:
        waiting, self._between_steps = self._between_steps, []
        for begin, chosen in waiting:
            if not chosen.done():
                begin()

    async def _step(self, batch: Batch) -> list[Delta]:
        try:
            output = await self._execute(batch)
        except Exception as error:  # noqa: BLE001 - whatever a device raises becomes the typed error of these requests
            failed = error if isinstance(error, TenutoError) else StepFailed(f"an engine step failed: {error}")
            if failed is not error:
                failed.__cause__ = error
            return self._engine.fail(batch, failed, self._clock.now())
        return self._engine.commit(batch, output, self._clock.now())

    async def _execute(self, batch: Batch) -> Output:
        if self._step_thread is not None:
            return await asyncio.get_running_loop().run_in_executor(self._step_thread, self._executor.execute, batch)
        output = self._executor.execute(batch)
        cost = self._options.step_cost
        await self._clock.sleep(0.0 if cost is None else cost(batch))
        return output

    def _deliver(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            stream = self._streams.get(delta.request)
            if stream is not None:
                stream.put(delta)

    def _close(self, reason: EngineClosed) -> None:
        if self._closed is None:
            self._closed = reason
            for _, chosen in self._between_steps:
                if not chosen.done():
                    chosen.set_exception(EngineClosed(*reason.args))
            self._between_steps.clear()
            self._deliver(self._engine.abort_all(reason, self._clock.now()))
