"""Sessions leave one engine and go on in another as if nothing had happened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import pytest

from tenuto.clock import run_virtual
from tenuto.engine import session_file
from tenuto.errors import (
    ContextLengthError,
    EngineClosed,
    NeverFits,
    SessionBusy,
    SessionExists,
    SessionFileError,
    SessionNotFound,
    StepFailed,
)
from tenuto.ids import SessionId, TokenId
from tenuto.protocol.engine import MAX_PIECE_BYTES, GenerateParams
from tenuto.protocol.hints import RunHints
from transfers import A, B, C, Place, cut, each


def scenario(body: Callable[[Place, Place], Awaitable[None]], **there: object) -> None:
    async def main() -> None:
        here, other = Place(), Place(**there)  # type: ignore[arg-type]
        async with here.client, other.client:
            await body(here, other)
        here.core.check_invariants()
        other.core.check_invariants()

    run_virtual(main())


@pytest.mark.parametrize("num_prompt", [1, 3, 4, 5, 8, 37])
@pytest.mark.parametrize("block_size", [4, 3, 16])
def test_goes_on_elsewhere_with_the_same_tokens(num_prompt: int, block_size: int) -> None:
    async def body(here: Place, there: Place) -> None:
        await here.client.open(A)
        await here.say(A, range(num_prompt))
        data = await here.export(A)
        await there.client.import_(B, cut(data, 7))
        assert await there.client.tokens(B) == await here.client.tokens(A)
        stats = await there.client.stats(B)
        assert (stats.num_tokens, stats.num_computed) == (num_prompt + 6, num_prompt + 5)
        assert stats.total_computed_tokens == 0
        assert await there.say(B, [9]) == await here.say(A, [9])
        assert (await there.client.stats(B)).total_computed_tokens == 1 + 1 + 5  # new, last sampled, then one a step

    scenario(body, block_size=block_size, num_blocks=256 // block_size)


def test_tokens_without_kv_are_computed_later() -> None:
    async def body(here: Place, there: Place) -> None:
        await here.client.open(A)
        await here.say(A, [1, 2, 3])
        here.core.start_epoch(0.0)
        await there.client.import_(A, cut(await here.export(A)))
        assert (await there.client.stats(A)).num_computed == 0
        assert await there.say(A) == await here.say(A)

    scenario(body)


def test_an_empty_session_moves_too() -> None:
    async def body(here: Place, there: Place) -> None:
        await here.client.open(A)
        await there.client.import_(A, cut(await here.export(A)))
        assert await there.say(A, [5]) == await here.say(A, [5])

    scenario(body)


def test_kv_of_another_form_is_left_and_computed_again() -> None:
    async def body(here: Place, there: Place) -> None:
        await here.client.open(A)
        await here.say(A, range(20))
        await there.client.import_(A, cut(await here.export(A)))
        assert (await there.client.stats(A)).num_computed == 0
        assert await there.say(A) == await here.say(A)

    scenario(body, kv_type="int8")


def test_pieces_are_bounded_and_a_session_may_go_on_while_it_is_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_file, "MAX_PAYLOAD_BYTES", 64)

    async def body(here: Place, there: Place) -> None:
        await here.client.open(A)
        await here.say(A, range(30))
        tokens, taken = await here.client.tokens(A), []
        async with aclosing(here.client.export(A)) as pieces:
            async for piece in pieces:
                taken.append(piece)
                if len(taken) % 3 == 0:
                    await here.say(A, [7], 2)
        assert len(taken) > 6 and all(len(piece) <= MAX_PIECE_BYTES for piece in taken)
        await there.client.import_(A, each(taken))
        assert await there.client.tokens(A) == tokens
        assert (await there.client.stats(A)).num_computed == 35
        await there.say(A, [7], 2)

    scenario(body)


def test_steps_of_others_go_on_while_sessions_move(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_file, "MAX_PAYLOAD_BYTES", 64)

    async def body(here: Place, there: Place) -> None:
        await here.client.open(A)
        await here.say(A, range(30))
        data = await here.export(A)
        for place in (here, there):
            await place.client.open(C)
        others = [asyncio.create_task(place.say(C, [3], 60)) for place in (here, there)]
        await asyncio.sleep(2.5)  # in the middle of a step
        taken = [piece async for piece in here.client.export(A)]
        assert b"".join(taken) == data
        await there.client.import_(B, each(taken))
        assert await there.say(B) == await here.say(A)
        await asyncio.gather(*others)

    scenario(body)


def test_imported_kv_is_shared_with_forks_only() -> None:
    async def body(here: Place, there: Place) -> None:
        await here.client.open(A)
        await here.say(A, range(20))
        await there.client.import_(A, cut(await here.export(A)))
        await there.client.open(B, parent=A)
        assert (await there.client.stats(B)).num_blocks_shared == 7
        assert await there.say(B) == await there.say(A)
        await there.client.open(C)
        await there.say(C, range(20))
        assert (await there.client.stats(C)).total_reused_tokens == 0

    scenario(body)


def test_an_import_takes_kv_from_idle_sessions_but_never_more_than_there_is() -> None:
    async def body(here: Place, there: Place) -> None:
        await here.client.open(A)
        await here.say(A, range(40))
        data = await here.export(A)
        await there.client.open(B)
        await there.say(B, range(30))
        await there.client.import_(A, cut(data))  # 12 blocks of 15; B holds 9
        assert (await there.client.stats(A)).num_computed == 45
        assert (await there.client.stats(B)).num_computed == 0
        assert await there.say(A) == await here.say(A)
        await there.client.close(A)
        busy = asyncio.create_task(there.say(B, [], 20))
        await asyncio.sleep(3)
        await there.client.import_(A, cut(data))
        assert (await there.client.stats(A)).num_computed < 45  # B computes, and keeps what it has
        await busy
        await there.say(A)

    scenario(body, num_blocks=15)


def test_kv_that_is_taken_back_ends_the_export_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_file, "MAX_PAYLOAD_BYTES", 64)

    async def body(here: Place, there: Place) -> None:
        await here.client.open(A)
        await here.say(A, range(30))
        pieces = here.client.export(A)
        taken = [await anext(pieces) for _ in range(6)]
        here.core.start_epoch(0.0)
        taken += [piece async for piece in pieces]
        await there.client.import_(A, each(taken))
        assert 0 < (await there.client.stats(A)).num_computed < 35
        assert await there.say(A) == await here.say(A)

    scenario(body)


def test_kv_that_is_taken_back_during_an_import_is_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_file, "MAX_PAYLOAD_BYTES", 64)

    async def body(here: Place, there: Place) -> None:
        await here.client.open(A)
        await here.say(A, range(30))
        data = await here.export(A)

        async def disturbed() -> AsyncIterator[bytes]:
            for first in range(0, len(data), 100):
                if first == 500:
                    there.core.start_epoch(0.0)
                yield data[first : first + 100]

        await there.client.import_(A, disturbed())
        assert (await there.client.stats(A)).num_computed == 0
        assert await there.say(A) == await here.say(A)

    scenario(body)


def test_what_cannot_be_taken_is_refused_and_nothing_changed() -> None:
    async def body(here: Place, there: Place) -> None:
        await here.client.open(A)
        await here.say(A, range(20))
        data = await here.export(A)
        await there.client.open(B)
        before = there.state()
        with pytest.raises(SessionExists):
            await there.client.import_(B, cut(data))
        with pytest.raises(SessionFileError, match=r"'model of model' with the fingerprint 'model'.* 'x'"):
            await there.client.import_(A, cut(data))
        with pytest.raises(SessionFileError, match="no exported session"):
            await there.client.import_(A, cut(b"GGUF" + data))
        with pytest.raises(SessionFileError, match="cut short"):
            await there.client.import_(A, cut(b""))
        assert there.state() == before
        with pytest.raises(SessionNotFound):
            await there.client.stats(A)
        with pytest.raises(SessionNotFound):
            await here.export(B)

    scenario(body, fingerprint="x")


@pytest.mark.parametrize(
    ("sizes", "error"), [({"max_model_tokens": 20}, ContextLengthError), ({"num_blocks": 5}, NeverFits)]
)
def test_what_is_too_long_is_refused(sizes: dict[str, int], error: type[Exception]) -> None:
    async def body(here: Place, there: Place) -> None:
        await here.client.open(A)
        await here.say(A, range(20))
        before = there.state()
        with pytest.raises(error):
            await there.client.import_(A, cut(await here.export(A)))
        assert there.state() == before

    scenario(body, **sizes)


def test_a_busy_session_is_not_exported_and_one_that_appears_meanwhile_is_kept() -> None:
    async def body(here: Place, there: Place) -> None:
        await here.client.open(A)
        await here.say(A, range(20))
        data = await here.export(A)
        stream = here.client.generate(A, [], GenerateParams(max_tokens=50))
        await anext(stream)
        with pytest.raises(SessionBusy):
            await here.export(A)
        await stream.aclose()

        async def late() -> AsyncIterator[bytes]:
            yield data[:-10]
            await there.client.open(A)
            yield data[-10:]

        before = there.state()
        with pytest.raises(SessionExists):
            await there.client.import_(A, late())
        assert await there.client.tokens(A) == ()
        await there.client.close(A)
        assert there.state() == before

    scenario(body)


def test_an_import_that_is_given_up_leaves_nothing() -> None:
    async def body(here: Place, there: Place) -> None:
        await here.client.open(A)
        await here.say(A, range(40))
        data = await here.export(A)

        async def stalled() -> AsyncIterator[bytes]:
            yield data[:-40]
            await asyncio.sleep(1000)

        before = there.state()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await there.client.import_(A, stalled())
        assert there.state()[0] == before[0] and there.state()[3] == before[3]
        await there.client.import_(A, cut(data))
        await there.say(A)

    scenario(body)


def test_a_device_that_fails_fails_the_call_and_leaves_nothing() -> None:
    async def body(here: Place, there: Place) -> None:
        await here.client.open(A)
        await here.say(A, range(40))
        data = await here.export(A)

        def fail(*_: object) -> bytes:
            raise SessionFileError("numbers that are not finite")

        there.executor.write_kv = fail  # type: ignore[method-assign, assignment]
        with pytest.raises(SessionFileError, match="finite"):
            await there.client.import_(A, cut(data))
        assert there.core.num_owned_blocks == 0 and there.core.levels().num_sessions == 0

    scenario(body)


def test_a_stopped_engine_says_so() -> None:
    async def main() -> None:
        place = Place()
        async with place.client:
            await place.client.open(A)
            await place.say(A, range(10))
            data = await place.export(A)
            pieces = place.client.export(A)
            await anext(pieces)
        with pytest.raises(EngineClosed):
            await place.client.import_(B, cut(data))
        with pytest.raises(EngineClosed):
            await place.client.tokens(A)
        with pytest.raises(EngineClosed):
            async for _ in pieces:
                pass

    run_virtual(main())


def test_the_tenant_of_an_import_is_the_importers() -> None:
    async def body(here: Place, there: Place) -> None:
        hints = RunHints(tenant="t")
        await here.client.open(A)
        await here.say(A, range(9))
        await there.client.import_(A, cut(await here.export(A)), hints)
        await there.client.open(B, parent=A, hints=hints)
        with pytest.raises(Exception, match="tenant"):
            await there.client.open(SessionId("x"), parent=A, hints=RunHints(tenant="u"))
        await there.client.append(B, [TokenId(1)])

    scenario(body)


def test_threads_keep_the_order() -> None:
    """The real client's executor has a thread of its own: reads and writes come between steps there too."""

    async def main() -> None:
        from tenuto.clock import RealClock
        from tenuto.engine import LocalEngineClient

        places = []
        for _ in range(2):
            place = Place()
            place.client = LocalEngineClient(place.core, place.executor, RealClock(), await place.client.info())
            place.executor._free_blocks = None  # asked in the thread, it would see the loop's state in between
            places.append(place)
        here, there = places
        async with here.client, there.client:
            await here.client.open(A)
            await here.say(A, range(40))
            for place in places:
                await place.client.open(C)
            others = [asyncio.create_task(place.say(C, [3], 100)) for place in places]
            for i in range(10):
                name = SessionId(f"i{i}")
                await there.client.import_(name, here.client.export(A))
                await there.say(name, [i], 3)
                await there.client.close(name)
            await asyncio.gather(*others)

            def fail(*_: object) -> bytes:
                raise MemoryError("no memory")

            here.executor.read_kv = fail  # type: ignore[method-assign, assignment]
            with pytest.raises(StepFailed, match="no memory"):
                await here.export(A)

    asyncio.run(main())
