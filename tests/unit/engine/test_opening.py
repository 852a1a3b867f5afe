"""A session that is opened by the call that generates on it: here, across a boundary, and scripted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from tenuto.clock import VirtualClock, run_virtual
from tenuto.errors import InvalidRequest, SessionExists, SessionNotFound, TenutoError
from tenuto.ids import SessionId, TokenId
from tenuto.protocol.engine import EngineClient, GenerateParams
from tenuto.protocol.hints import RunHints
from tenuto.testing.boundary import across
from tenuto.testing.scripted_engine import ScriptedEngine
from transfers import VOCAB, A, B, Place

Body = Callable[[EngineClient], Awaitable[None]]
HINTS = RunHints(tenant="甲", run="运行")


@asynccontextmanager
async def local() -> AsyncIterator[EngineClient]:
    place = Place()
    async with place.client:
        yield place.client
    place.core.check_invariants()


@asynccontextmanager
async def remote() -> AsyncIterator[EngineClient]:
    place = Place()
    async with place.client, across(place.client, VirtualClock()) as client:
        yield client
    place.core.check_invariants()


@asynccontextmanager
async def scripted() -> AsyncIterator[EngineClient]:
    yield ScriptedEngine(lambda tokens: tokens[-1] + 1)


@pytest.fixture(params=[local, remote, scripted], ids=["here", "across", "scripted"])
def on_engine(request: pytest.FixtureRequest) -> Callable[[Body], None]:
    def run(body: Body) -> None:
        async def main() -> None:
            async with request.param() as client:
                await body(client)

        run_virtual(main())

    return run


async def generate(client: EngineClient, session: SessionId, ids: list[int], max_tokens: int = 3) -> list[TokenId]:
    params = GenerateParams(max_tokens=max_tokens, hints=HINTS)
    stream = client.generate(session, [TokenId(i) for i in ids], params, opening=HINTS)
    return [token for delta in [d async for d in stream] for token in delta.ids]


def test_it_stays_open_and_holds_what_was_given_and_generated(on_engine: Callable[[Body], None]) -> None:
    async def body(client: EngineClient) -> None:
        ids = await generate(client, A, [1, 2])
        assert len(ids) == 3 and await client.tokens(A) == (1, 2, *ids)
        await client.open(B, hints=HINTS)
        params = GenerateParams(max_tokens=3, hints=HINTS)
        again = [d.ids async for d in client.generate(B, [TokenId(1), TokenId(2)], params)]
        assert [token for group in again for token in group] == ids, "as with two calls"

    on_engine(body)


@pytest.mark.parametrize("ids", [[], [1] * 100_000], ids=["no ids", "more than the context"])
def test_what_is_refused_leaves_no_session(on_engine: Callable[[Body], None], ids: list[int]) -> None:
    async def body(client: EngineClient) -> None:
        with pytest.raises(TenutoError):
            await generate(client, A, ids)
        with pytest.raises(SessionNotFound):
            await client.tokens(A)
        await client.open(A)

    on_engine(body)


def test_one_that_is_open_is_left_as_it_is(on_engine: Callable[[Body], None]) -> None:
    async def body(client: EngineClient) -> None:
        kept = await generate(client, A, [1, 2])
        with pytest.raises(SessionExists):
            await generate(client, A, [5])
        assert await client.tokens(A) == (1, 2, *kept)

    on_engine(body)


def test_a_stream_that_is_left_leaves_the_session(on_engine: Callable[[Body], None]) -> None:
    async def body(client: EngineClient) -> None:
        stream = client.generate(A, [TokenId(1)], GenerateParams(), opening=HINTS)
        first = await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
        assert (await client.tokens(A))[: 1 + len(first.ids)] == (1, *first.ids)
        await client.close(A)

    on_engine(body)


def test_ids_that_no_model_has_are_refused_by_name_and_leave_none() -> None:
    async def main() -> None:
        async with remote() as client:
            with pytest.raises(InvalidRequest, match=str(VOCAB)):
                await generate(client, A, [VOCAB])
            with pytest.raises(SessionNotFound):
                await client.stats(A)

    run_virtual(main())
