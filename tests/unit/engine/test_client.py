"""The async client over the core and a fake executor."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable

import pytest

from tenuto.clock import RealClock, VirtualClock, run_virtual
from tenuto.engine import Batch, ClientOptions, Engine, EngineConfig, Executor, LocalEngineClient, Output
from tenuto.errors import Cancelled, EngineClosed, GrammarError, InvalidRequest, SessionBusy, StepFailed
from tenuto.ids import SessionId, TokenId
from tenuto.protocol.engine import EngineClient, EngineInfo, GenerateParams, TokenDelta
from tenuto.protocol.grammar import GrammarSpec, TokenGrammar
from tenuto.protocol.hints import ExpectedWait
from tenuto.testing.fake_executor import FakeExecutor, expected_next
from tenuto.testing.fake_grammar import PatternCompiler

CONFIG = EngineConfig(num_blocks=64, block_size=4, vocab_size=50, max_model_tokens=200)
INFO = EngineInfo(
    model="fake",
    fingerprint="0",
    vocab_size=50,
    max_model_tokens=200,
    block_size=4,
    num_blocks=64,
    kv_bytes_per_token=0,
    device="fake",
    precision="none",
    row_invariant=True,
)
A, B = SessionId("a"), SessionId("b")


class Counting:
    """Counts steps, and can be told to fail or to take long."""

    def __init__(self) -> None:
        self.inner = FakeExecutor(64, 4, 50)
        self.num_steps = 0
        self.fail = False
        self.gate: threading.Event | None = None
        self.entered = threading.Event()
        self.threads: set[str] = set()

    def execute(self, batch: Batch) -> Output:
        self.num_steps += 1
        self.entered.set()
        self.threads.add(threading.current_thread().name)
        if self.gate is not None:
            assert self.gate.wait(10)
        if self.fail:
            raise MemoryError("no memory left on the device")
        return self.inner.execute(batch)


def make_client(executor: Executor, *, inline: bool = True, **options: object) -> LocalEngineClient:
    return LocalEngineClient(
        Engine(CONFIG),
        executor,
        VirtualClock() if inline else RealClock(),
        INFO,
        compiler=PatternCompiler(50),
        options=ClientOptions(inline=inline, **options),  # type: ignore[arg-type]
    )


async def collect(client: EngineClient, session: SessionId, ids: list[int], params: GenerateParams) -> list[TokenDelta]:
    return [d async for d in client.generate(session, [TokenId(i) for i in ids], params)]


def expected(tokens: list[int], count: int) -> list[int]:
    known = [TokenId(t) for t in tokens]
    for _ in range(count):
        known.append(expected_next(known, 50))
    return list(known[-count:])


def scenario(body: Callable[[LocalEngineClient, Counting], Awaitable[None]], **options: object) -> None:
    """Run a scenario inline in virtual time, one second a step."""

    async def main() -> None:
        executor = Counting()
        async with make_client(executor, step_cost=lambda batch: 1.0, **options) as client:
            await client.open(A)
            await body(client, executor)

    run_virtual(main())


def test_streams_ids_and_usage() -> None:
    async def body(client: LocalEngineClient, executor: Counting) -> None:
        deltas = await collect(client, A, [1, 2, 3], GenerateParams(max_tokens=5))
        assert [t for d in deltas for t in d.ids] == expected([1, 2, 3], 5)
        assert [d.finish for d in deltas] == [None] * 4 + ["length"]
        usage = deltas[-1].usage
        assert usage is not None and all(d.usage is None for d in deltas[:-1])
        assert (usage.ttft_s, usage.total_s, usage.num_steps) == (1.0, 5.0, 5)
        await client.append(A, [TokenId(7)])
        stats = await client.stats(A)
        assert stats.num_tokens == stats.num_computed == 9
        await client.suspend(A, ExpectedWait(seconds=1.0))
        await client.truncate(A, 4)
        await client.open(B, parent=A)
        assert (await client.stats(B)).num_tokens == 4
        await client.close(B)
        assert (await client.info()).model == "fake"

    scenario(body)


def test_requests_are_batched() -> None:
    async def body(client: LocalEngineClient, executor: Counting) -> None:
        names = [SessionId(f"s{i}") for i in range(8)]
        for name in names:
            await client.open(name)
        results = await asyncio.gather(
            *(collect(client, name, [i, i + 1], GenerateParams(max_tokens=10)) for i, name in enumerate(names))
        )
        assert executor.num_steps == 10
        for index, deltas in enumerate(results):
            assert [t for d in deltas for t in d.ids] == expected([index, index + 1], 10)

    scenario(body)


def test_an_idle_engine_takes_no_steps() -> None:
    async def body(client: LocalEngineClient, executor: Counting) -> None:
        await asyncio.sleep(1000)
        assert executor.num_steps == 0
        await collect(client, A, [1], GenerateParams(max_tokens=2))
        await asyncio.sleep(1000)
        assert executor.num_steps == 2

    scenario(body)


def test_leaving_the_stream_cancels_at_once() -> None:
    async def body(client: LocalEngineClient, executor: Counting) -> None:
        stream = client.generate(A, [TokenId(1)], GenerateParams())
        first = await anext(stream)
        with pytest.raises(SessionBusy):
            await client.append(A, [TokenId(1)])
        await stream.aclose()
        await client.truncate(A, 1)
        await asyncio.sleep(10)
        assert executor.num_steps <= 2, "only the step in flight may still end"
        deltas = await collect(client, A, [], GenerateParams(max_tokens=1))
        assert deltas[0].ids == first.ids

    scenario(body)


def test_cancelling_a_task_cancels_its_request() -> None:
    async def body(client: LocalEngineClient, executor: Counting) -> None:
        task = asyncio.create_task(client.append(A, [TokenId(1)] * 100))
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await client.truncate(A, 0)

    scenario(body)


def test_closing_the_session_ends_its_stream() -> None:
    async def body(client: LocalEngineClient, executor: Counting) -> None:
        task = asyncio.create_task(collect(client, A, [1], GenerateParams()))
        await asyncio.sleep(3.5)
        await client.close(A)
        with pytest.raises(Cancelled):
            await task

    scenario(body)


def test_a_slow_consumer_holds_up_nobody() -> None:
    async def body(client: LocalEngineClient, executor: Counting) -> None:
        await client.open(B)
        stream = client.generate(A, [TokenId(1)], GenerateParams(max_tokens=20))
        await anext(stream)
        await collect(client, B, [2], GenerateParams(max_tokens=40))
        rest = [t async for d in stream for t in d.ids]
        assert rest == expected([1], 20)[1:]

    scenario(body)


def test_a_failing_executor_fails_the_requests_and_the_engine_lives_on() -> None:
    async def body(client: LocalEngineClient, executor: Counting) -> None:
        executor.fail = True
        with pytest.raises(StepFailed, match="no memory") as caught:
            await collect(client, A, [1, 2], GenerateParams())
        assert isinstance(caught.value.__cause__, MemoryError)
        executor.fail = False
        deltas = await collect(client, A, [3], GenerateParams(max_tokens=3))
        assert [t for d in deltas for t in d.ids] == expected([1, 2, 3], 3)
        assert (await client.counters()).num_failed_steps == 1

    scenario(body)


def test_grammars_are_compiled_from_their_spec() -> None:
    async def body(client: LocalEngineClient, executor: Counting) -> None:
        spec = GrammarSpec(kind="regex", source="1 2,3 4 5")
        deltas = await collect(client, A, [0], GenerateParams(grammar=spec))
        ids = [t for d in deltas for t in d.ids]
        assert ids[0] == 1 and ids[1] in (2, 3) and ids[2:] == [4, 5]
        assert sum(d.num_forced for d in deltas) == 3 and deltas[-1].finish == "grammar"
        with pytest.raises(GrammarError, match="pattern"):
            await collect(client, A, [0], GenerateParams(grammar=GrammarSpec(kind="regex", source="北京")))
        assert (await client.stats(A)).num_tokens == 5, "a refused call changed nothing"
        with pytest.raises(InvalidRequest):
            await collect(client, A, [99], GenerateParams())

    scenario(body)


def test_stopping_ends_requests_and_refuses_new_ones() -> None:
    async def main() -> None:
        client = make_client(Counting(), step_cost=lambda batch: 1.0)
        with pytest.raises(EngineClosed, match="not been started"):
            await client.open(A)
        async with client:
            await client.open(A)
            task = asyncio.create_task(collect(client, A, [1], GenerateParams()))
            await asyncio.sleep(2.5)
        with pytest.raises(EngineClosed, match="stopped"):
            await task
        with pytest.raises(EngineClosed):
            await client.stats(A)

    run_virtual(main())


def test_a_bug_in_the_core_leaves_nobody_waiting() -> None:
    async def main() -> None:
        engine = Engine(CONFIG)
        client = LocalEngineClient(engine, Counting(), VirtualClock(), INFO, options=ClientOptions(inline=True))
        with pytest.raises(ZeroDivisionError):
            async with client:
                await client.open(A)

                def broken(now: float) -> Batch | None:
                    raise ZeroDivisionError

                engine.schedule = broken  # type: ignore[method-assign]
                with pytest.raises(EngineClosed, match="internal error"):
                    await collect(client, A, [1], GenerateParams())

    run_virtual(main())


def test_the_event_loop_runs_while_a_step_computes() -> None:
    async def main() -> None:
        executor = Counting()
        executor.gate = threading.Event()
        async with make_client(executor, inline=False) as client:
            await client.open(A)
            stream = client.generate(A, [TokenId(1)], GenerateParams(max_tokens=3))
            first = asyncio.ensure_future(anext(stream))
            assert await asyncio.to_thread(executor.entered.wait, 10)
            await client.open(B)  # answered while the step is in flight
            executor.gate.set()
            await first
            assert [t async for d in stream for t in d.ids] == expected([1], 3)[1:]
        assert executor.threads == {"tenuto-step_0"}

    asyncio.run(main())


def test_a_grammar_that_takes_too_long_is_refused() -> None:
    class Slow:
        def compile(self, spec: GrammarSpec) -> TokenGrammar:
            time.sleep(0.3)
            return PatternCompiler(50).compile(spec)

    async def main() -> None:
        options = ClientOptions(compile_timeout_s=0.01)
        client = LocalEngineClient(Engine(CONFIG), Counting(), RealClock(), INFO, compiler=Slow(), options=options)
        async with client:
            await client.open(A)
            with pytest.raises(GrammarError, match="longer than"):
                await collect(client, A, [1], GenerateParams(grammar=GrammarSpec(kind="regex", source="1")))
            await collect(client, A, [1], GenerateParams(max_tokens=2))

    asyncio.run(main())
