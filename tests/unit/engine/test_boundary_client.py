"""An engine behind a boundary: cancelling, bounds, and every way in which the other side can be lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest

from boundaries import make_engine, over_sockets
from tenuto.clock import RealClock, VirtualClock, run_virtual
from tenuto.engine import LocalEngineClient
from tenuto.engine.boundary import BoundaryLimits, RemoteEngineClient
from tenuto.engine.boundary import messages as m
from tenuto.engine.boundary.errors import pack_error
from tenuto.engine.boundary.frames import MAX_FRAME_BYTES, frame
from tenuto.errors import (
    Cancelled,
    ContextLengthError,
    EngineClosed,
    InvalidRequest,
    NeverFits,
    QueueFull,
    SessionFileError,
    SessionNotFound,
    StepFailed,
)
from tenuto.ids import SessionId, TokenId
from tenuto.protocol.engine import EngineClient, EngineInfo, GenerateParams, TokenDelta
from tenuto.protocol.grammar import GrammarSpec
from tenuto.protocol.hints import RunHints
from tenuto.testing.boundary import MemoryTransport, across
from tenuto.testing.fake_executor import expected_next
from tenuto.testing.scripted_engine import ScriptedEngine
from transfers import VOCAB, A, B, C, Place

Scenario = Callable[[RemoteEngineClient, Place], Awaitable[None]]
LIMITS = BoundaryLimits(max_calls=4, silence_s=6.0, loading_silence_s=60.0)


def scenario(body: Scenario, **sizes: Any) -> None:
    """In virtual time, one second a step."""

    async def main() -> None:
        place = Place(**sizes)
        async with place.client, across(place.client, VirtualClock(), limits=LIMITS) as client:
            await client.open(A)
            await body(client, place)
        place.core.check_invariants()

    run_virtual(main())


async def collect(client: EngineClient, session: SessionId, ids: list[int], max_tokens: int = 5) -> list[TokenId]:
    stream = client.generate(session, [TokenId(i) for i in ids], GenerateParams(max_tokens=max_tokens))
    return [token for delta in [d async for d in stream] for token in delta.ids]


def test_leaving_a_stream_cancels_before_whatever_is_asked_next() -> None:
    async def body(client: RemoteEngineClient, place: Place) -> None:
        stream = client.generate(A, [TokenId(1)], GenerateParams())
        first = await anext(stream)
        await stream.aclose()
        await client.truncate(A, 1)  # SessionBusy if it still ran
        assert (await client.stats(A)).num_tokens == 1
        assert await collect(client, A, [], 1) == list(first.ids)

    scenario(body)


def test_cancelling_a_call_frees_all_it_held() -> None:
    async def body(client: RemoteEngineClient, place: Place) -> None:
        calls = [
            asyncio.create_task(client.append(A, [TokenId(1)] * 30)),
            asyncio.create_task(client.embed([TokenId(2)] * 30, "mean")),
        ]
        await asyncio.sleep(0.5)
        for call in calls:
            call.cancel()
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends)
        await client.close(A)
        levels = (await client.counters()).levels
        assert (levels.num_running, levels.num_sessions, levels.num_blocks_owned) == (0, 0, 0)

    scenario(body)


def test_closing_a_session_ends_its_stream() -> None:
    async def body(client: RemoteEngineClient, place: Place) -> None:
        call = asyncio.create_task(collect(client, A, [1], 100))
        await asyncio.sleep(3.5)
        await client.close(A)
        with pytest.raises(Cancelled, match="was closed"):
            await call

    scenario(body)


def test_a_slow_reader_of_one_stream_holds_up_nobody() -> None:
    async def body(client: RemoteEngineClient, place: Place) -> None:
        await client.open(B)
        slow = client.generate(A, [TokenId(1)], GenerateParams(max_tokens=60))
        seen = [*(await anext(slow)).ids]
        await collect(client, B, [2], 20)
        assert (await client.stats(A)).num_tokens >= 20, "the slow reader's own stream has gone on as well"
        seen += [t async for d in slow for t in d.ids]
        known = [TokenId(1)]
        for token in seen:
            assert token == expected_next(known, VOCAB)
            known.append(token)
        assert len(seen) == 60

    scenario(body)


def test_while_the_callers_process_is_busy_the_steps_go_on() -> None:
    """Counted in steps: nothing is read from the socket until all are done, and then all tokens are there."""

    async def main() -> None:
        async with make_engine(RealClock()) as engine, over_sockets(engine) as (client, transport):
            await client.open(A)
            stream = client.generate(A, [TokenId(1)], GenerateParams(max_tokens=80))
            seen = [*(await anext(stream)).ids]
            transport.pause_reading()  # as if this process were parsing a body of 8 MiB
            while (await engine.stats(A)).num_tokens < 81:  # noqa: ASYNC110 - steps are what is counted
                await asyncio.sleep(0.001)
            assert len(seen) == 1
            transport.resume_reading()
            seen += [t async for d in stream for t in d.ids]
        assert len(seen) == 80

    asyncio.run(main())


def test_eight_streams_take_the_same_steps_as_without_a_boundary() -> None:
    async def body(client: RemoteEngineClient, place: Place) -> None:
        names = [SessionId(f"会话{i}") for i in range(4)]
        for name in names:
            await client.open(name)
        before = place.executor.num_steps
        await asyncio.gather(*(collect(client, name, [i], 10) for i, name in enumerate(names)))
        assert place.executor.num_steps - before == 10

    scenario(body)


def test_more_calls_than_allowed_are_refused_and_freeing_ones_still_go_through() -> None:
    async def body(client: RemoteEngineClient, place: Place) -> None:
        names = [SessionId(f"s{i}") for i in range(4)]
        for name in names:
            await client.open(name)
        calls = [asyncio.create_task(collect(client, name, [1], 50)) for name in names]
        await asyncio.sleep(0.5)
        with pytest.raises(QueueFull, match="4 calls to the engine are under way"):
            await client.open(B)
        with pytest.raises(QueueFull):
            await collect(client, A, [1])
        await client.truncate(A, 0)
        for name in names:
            await client.close(name)
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(end, Cancelled) for end in ends)
        assert len(await collect(client, A, [1])) == 5

    scenario(body)


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.append(A, [TokenId(2**70)]),
        lambda client: client.append(A, ["x"]),
        lambda client: client.append(5, []),
        lambda client: client.append(A, [object()]),
        lambda client: client.truncate(A, 1.5),
        lambda client: client.embed([TokenId(1)], "median"),
        lambda client: client.open(SessionId("half \ud83d")),
        lambda client: anext(client.generate(A, [], GenerateParams(max_tokens="many"))),  # type: ignore[arg-type]
        lambda client: anext(client.generate(A, [], GenerateParams(grammar="\ud800"))),  # type: ignore[arg-type]
        lambda client: anext(
            client.generate(
                A, [], GenerateParams(grammar=GrammarSpec(kind="lark", source="长" * (MAX_FRAME_BYTES // 3 + 1)))
            )
        ),
    ],
)
def test_a_call_that_makes_no_sense_fails_alone(ask: Callable[[Any], Awaitable[Any]]) -> None:
    async def body(client: RemoteEngineClient, place: Place) -> None:
        await client.open(B)
        other = asyncio.create_task(collect(client, B, [1], 20))
        await asyncio.sleep(1.5)
        with pytest.raises(InvalidRequest):
            await ask(client)
        assert len(await other) == 20
        assert await client.tokens(A) == ()

    scenario(body)


def test_an_exception_that_nobody_expected_is_a_step_failed_of_that_call_alone() -> None:
    class Broken(ScriptedEngine):
        async def truncate(self, session: SessionId, num_tokens: int) -> None:
            raise ZeroDivisionError("秘密 secret detail")

    async def main() -> None:
        async with across(Broken([[1, 2]]), VirtualClock()) as client:
            await client.open(A)
            with pytest.raises(StepFailed) as caught:
                await client.truncate(A, 0)
            assert "secret" not in str(caught.value), "what nobody meant for a client stays in the log"
            assert (await client.stats(A)).num_tokens == 0

    run_virtual(main())


# Sessions that leave and come


def test_an_export_sends_no_more_than_a_window_ahead() -> None:
    async def main() -> None:
        sent = 0

        class Endless(ScriptedEngine):
            async def export(self, session: SessionId) -> AsyncIterator[bytes]:
                nonlocal sent
                while True:
                    sent += 1
                    yield bytes(m.PIECE_BYTES)

        async with across(Endless([]), VirtualClock()) as client:
            async with aclosing(client.export(A)) as pieces:
                for taken in range(1, 20):
                    assert len(await anext(pieces)) == m.PIECE_BYTES
                    await asyncio.sleep(1)
                    assert sent <= taken + m.WINDOW_PIECES + 1
            await asyncio.sleep(1)
            at_end = sent
            await asyncio.sleep(100)
            assert sent == at_end, "it goes on although nobody reads"
            with pytest.raises(Cancelled, match="nobody took a piece"):
                async with aclosing(client.export(A)) as pieces:
                    await anext(pieces)
                    await asyncio.sleep(1000)
                    async for _ in pieces:
                        continue

    run_virtual(main())


def test_an_import_that_fails_stops_its_source_and_leaves_nothing() -> None:
    async def body(client: RemoteEngineClient, place: Place) -> None:
        given = 0

        async def rubbish() -> AsyncIterator[bytes]:
            nonlocal given
            while True:
                given += 1
                yield bytes(100_000)

        with pytest.raises(SessionFileError):
            await client.import_(B, rubbish())
        assert given <= m.WINDOW_PIECES + 2
        with pytest.raises(SessionNotFound):
            await client.tokens(B)

    scenario(body)


def test_an_import_whose_source_fails_or_dries_up_leaves_nothing() -> None:
    async def body(client: RemoteEngineClient, place: Place) -> None:
        await collect(client, A, [1, 2, 3])
        async with aclosing(client.export(A)) as pieces:
            data = b"".join([piece async for piece in pieces])

        async def fails() -> AsyncIterator[bytes]:
            yield data[:20]
            raise ConnectionResetError("the client left")

        async def dries_up() -> AsyncIterator[bytes]:
            yield data[:20]
            await asyncio.sleep(1000)

        with pytest.raises(ConnectionResetError):
            await client.import_(B, fails())
        with pytest.raises(Cancelled, match="no further piece"):
            await client.import_(C, dries_up())
        for name in (B, C):
            with pytest.raises(SessionNotFound):
                await client.tokens(name)
        levels = (await client.counters()).levels
        assert levels.num_sessions == 1

    scenario(body)


# The other side is lost


class OneSided:
    """A client whose other side is played by the test."""

    def __init__(self, explain: Callable[[], Awaitable[str]] | None = None) -> None:
        self.client = RemoteEngineClient(VirtualClock(), explain=explain, limits=LIMITS)
        self.far = MemoryTransport(asyncio.Protocol())
        self.near = MemoryTransport(self.client.link)
        self.near.connect(self.far)

    def say(self, *messages: m.FromHost) -> None:
        self.far.write(b"".join(frame(m.encode(message)) for message in messages))

    async def start(self) -> RemoteEngineClient:
        self.say(m.Ready(INFO))
        await self.client.ready()
        return self.client


INFO = EngineInfo(
    model="fake",
    fingerprint="0",
    vocab_size=50,
    max_model_tokens=20,
    block_size=4,
    num_blocks=64,
    kv_bytes_per_token=8,
    device="fake",
    precision="none",
    row_invariant=True,
)


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield b"x" * 1000


def everything(client: RemoteEngineClient) -> list[Awaitable[Any]]:
    """One call of each kind that waits."""
    return [
        client.open(A),
        client.append(A, [TokenId(1)]),
        collect(client, A, [1]),
        client.import_(B, endless()),
    ]


Loss = Callable[[OneSided], Awaitable[None]]


async def dies(world: OneSided) -> None:
    world.far.close()


async def falls_silent(world: OneSided) -> None:
    return


async def sends_rubbish(world: OneSided) -> None:
    world.far.write(b"\xff\xff\xff\xff")


async def stops_by_itself(world: OneSided) -> None:
    world.say(m.NotReady(pack_error(EngineClosed("the engine stopped because of an internal error"))))


async def is_stopped(world: OneSided) -> None:
    await world.client.aclose()


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (dies, "the engine's process has ended: 被信号 9 杀死"),
        (falls_silent, "has not been heard of for 6 s"),
        (sends_rubbish, "a frame of 4294967295 bytes"),
        (stops_by_itself, "stopped because of an internal error"),
        (is_stopped, "the engine was stopped"),
    ],
)
def test_every_call_ends_however_the_other_side_is_lost(loss: Loss, said: str) -> None:
    async def main() -> None:
        async def explain() -> str:
            await asyncio.sleep(1)
            return "被信号 9 杀死"

        world = OneSided(explain)
        client = await world.start()
        assert client.is_open
        calls = [asyncio.ensure_future(call) for call in everything(client)]
        await asyncio.sleep(0.1)
        await loss(world)
        async with asyncio.timeout(20):
            ends = await asyncio.gather(*calls, return_exceptions=True)
            reason = await client.ended()
        assert all(isinstance(end, EngineClosed) and said in str(end) for end in ends), ends
        assert said in str(reason) and not client.is_open
        assert len({id(end) for end in ends}) == len(ends), "one error raised in many places"
        for call in (client.info(), client.stats(A), client.counters(), *everything(client)):
            with pytest.raises(EngineClosed, match=said[-9:]):
                await call
        await client.aclose()

    run_virtual(main())


def test_a_host_that_lives_but_does_not_answer_counts_as_lost() -> None:
    async def main() -> None:
        world = OneSided()
        client = await world.start()

        async def beat() -> None:
            while True:
                world.say(m.Heartbeat())
                await asyncio.sleep(1)

        beating = asyncio.create_task(beat())
        stream = asyncio.create_task(collect(client, A, [1]))
        with pytest.raises(EngineClosed, match="did not answer"):
            await client.truncate(A, 0)
        with pytest.raises(EngineClosed, match="did not answer the call 'truncate' within 30 s"):
            await stream
        beating.cancel()
        await client.aclose()

    run_virtual(main())


def test_a_long_stop_of_this_process_does_not_make_the_host_look_silent() -> None:
    """Time that jumps, as after a suspend, is one heartbeat."""

    async def main() -> None:
        world = OneSided()
        client = await world.start()
        loop: Any = asyncio.get_running_loop()
        for _ in range(5):
            await asyncio.sleep(1)
            loop._jumping.time_s += 100
            world.say(m.Heartbeat())
        assert client.is_open
        await client.aclose()

    run_virtual(main())


@pytest.mark.parametrize(
    "error",
    [NeverFits("needs 9 GB, and 2 GB are free"), ContextLengthError(9, 8, "模型"), EngineClosed("internal error")],
)
def test_what_keeps_an_engine_from_starting_is_raised_as_it_is(error: Exception) -> None:
    async def main() -> None:
        world = OneSided()
        waiting = asyncio.create_task(world.client.ready())
        world.say(m.Heartbeat())
        await asyncio.sleep(50)
        with pytest.raises(EngineClosed, match="has not been started"):
            await world.client.open(A)
        world.say(m.NotReady(pack_error(error)))  # type: ignore[arg-type]
        with pytest.raises(type(error)) as caught:
            await waiting
        assert str(caught.value) == str(error) and vars(caught.value) == vars(error)
        await world.client.aclose()

    run_virtual(main())


def test_loading_may_be_silent_for_longer_but_not_for_ever() -> None:
    async def main() -> None:
        world = OneSided()
        waiting = asyncio.create_task(world.client.ready())
        await asyncio.sleep(50)
        assert not waiting.done()
        with pytest.raises(EngineClosed, match="has not been heard of for 60 s"):
            await waiting
        await world.client.aclose()

    run_virtual(main())


def test_a_host_that_sends_more_than_a_call_may_give_is_cut_off() -> None:
    async def main() -> None:
        world = OneSided()
        client = await world.start()
        stream = client.generate(A, [], GenerateParams())
        waiting = asyncio.create_task(anext(stream))
        await asyncio.sleep(0.1)
        world.say(m.Deltas([(1, TokenDelta(ids=(TokenId(1),)))] * 100))
        world.say(m.Deltas([(77, TokenDelta(ids=(TokenId(1),)))]))  # of a call that nobody made: of no interest
        assert (await waiting).ids == (1,)
        with pytest.raises(EngineClosed, match="more arrived than a call may give"):
            async for _ in stream:
                continue
        await client.aclose()

    run_virtual(main())


def test_an_engine_that_dies_of_a_bug_closes_the_boundary() -> None:
    async def main() -> None:
        place = Place()

        def bug(now: float) -> None:
            raise AssertionError("a block is lost")

        with pytest.raises(AssertionError, match="a block is lost"):
            async with place.client, across(place.client, VirtualClock()) as client:
                await client.open(A)
                place.core.schedule = bug  # type: ignore[assignment, method-assign]
                with pytest.raises(EngineClosed, match="internal error"):
                    await collect(client, A, [1])
                assert "internal error" in str(await client.ended())

    run_virtual(main())


def test_it_has_every_call_of_the_protocol() -> None:
    import inspect

    calls = {name for name, _ in inspect.getmembers(EngineClient, inspect.isfunction) if not name.startswith("_")}
    for name in calls:
        ours, local = getattr(RemoteEngineClient, name), getattr(LocalEngineClient, name)
        assert [*inspect.signature(ours).parameters] == [*inspect.signature(local).parameters], name
    asked = {kind.__name__.lower() for kind in m.Question.__args__}  # type: ignore[attr-defined]
    assert asked == {name.rstrip("_") for name in calls} - {"info"}


def test_hints_and_parameters_arrive_as_they_were_given() -> None:
    hints = RunHints(run=None, priority=-3, deadline_s=1.5, tenant="租户")
    params = GenerateParams(
        max_tokens=3,
        stop_ids=frozenset({TokenId(1)}),
        grammar=GrammarSpec(kind="lark", source="a: “引号”"),
        hints=hints,
    )

    async def main() -> None:
        engine = ScriptedEngine([[1, 2, 3]])
        async with across(engine, VirtualClock()) as client:
            await client.open(A, hints=hints)
            await collect_with(client, params)
        assert engine.params == [params]

    async def collect_with(client: EngineClient, wanted: GenerateParams) -> None:
        async for _ in client.generate(A, [TokenId(4)], wanted):
            continue

    run_virtual(main())


class HeldBack:
    """Lets nothing arrive while `on`; then all at once, as one read of a busy process brings it."""

    def __init__(self) -> None:
        self.on = False
        self._held = b""

    def __call__(self, data: bytes) -> list[bytes]:
        held, self._held = self._held + data, b""
        if not self.on:
            return [held]
        self._held = held
        return []


@pytest.mark.parametrize("num_passes", range(4))
@pytest.mark.parametrize("how", ["close", "truncate"])
def test_what_sets_something_free_happens_whoever_waits_for_it(how: str, num_passes: int) -> None:
    """A client that leaves as its reply ends cancels the closing of its session."""

    async def main() -> None:
        place, cut = Place(), HeldBack()
        async with place.client, across(place.client, VirtualClock(), cut=cut) as client:
            await client.open(A)
            await client.append(A, [TokenId(1)] * 3)
            cut.on = True
            freeing = asyncio.create_task(client.close(A) if how == "close" else client.truncate(A, 1))
            for _ in range(num_passes + 1):
                await asyncio.sleep(0)
            freeing.cancel()
            await asyncio.gather(freeing, return_exceptions=True)
            cut.on = False
            if how == "truncate":
                assert await client.tokens(A) == (1,)
                return
            with pytest.raises(SessionNotFound):
                await client.tokens(A)
        place.core.check_invariants()

    run_virtual(main())
