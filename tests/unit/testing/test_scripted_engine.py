"""The scripted engine keeps the EngineClient contract that the chat room relies on."""

from __future__ import annotations

import asyncio

import pytest

from tenuto.errors import (
    Cancelled,
    ContextLengthError,
    InvalidRequest,
    QueueFull,
    SessionBusy,
    SessionExists,
    SessionNotFound,
)
from tenuto.ids import SessionId
from tenuto.protocol.engine import GenerateParams, TokenDelta
from tenuto.protocol.hints import ExpectedWait
from tenuto.testing.scripted_engine import ScriptedEngine

A, B = SessionId("a"), SessionId("b")


async def generate(engine: ScriptedEngine, session: SessionId, ids: list[int], **params: object) -> list[TokenDelta]:
    return [delta async for delta in engine.generate(session, ids, GenerateParams(**params))]


def test_the_session_holds_what_was_given_and_generated():
    async def main() -> None:
        engine = ScriptedEngine([[7, 8, 9], [5]])
        await engine.open(A)
        first = await generate(engine, A, [1, 2], stop_ids=frozenset({9}))
        assert [d.ids for d in first] == [(7,), (8,), (9,)]
        assert (first[-1].finish, first[0].finish) == ("stop", None)
        assert engine.sessions == {A: (1, 2, 7, 8, 9)}
        second = await generate(engine, A, [3])
        assert second[-1].finish == "grammar" and engine.sessions[A] == (1, 2, 7, 8, 9, 3, 5)
        # The last sampled id had no KV: it is computed with the appended one.
        usage = second[-1].usage
        assert (usage.num_prompt, usage.num_held, usage.num_shared, usage.num_computed) == (6, 4, 0, 2)

    asyncio.run(main())


def test_a_function_is_a_script_too_and_max_tokens_ends_it():
    async def main() -> None:
        engine = ScriptedEngine(lambda tokens: tokens[-1] + 1, ids_per_delta=2)
        await engine.open(A)
        deltas = await generate(engine, A, [1], max_tokens=3)
        assert [d.ids for d in deltas] == [(2, 3), (4,)] and deltas[-1].finish == "length"
        assert deltas[-1].usage.num_generated == 3 and deltas[-1].usage.num_steps == 2

    asyncio.run(main())


def test_fork_truncate_append_and_close():
    async def main() -> None:
        engine = ScriptedEngine([])
        await engine.open(A)
        await engine.append(A, [1, 2, 3])
        await engine.open(B, parent=A)
        await engine.truncate(A, 1)
        assert engine.sessions == {A: (1,), B: (1, 2, 3)}
        assert (await engine.stats(B)).num_computed == 3 and (await engine.stats(A)).num_computed == 1
        await engine.suspend(A, ExpectedWait(seconds=2.0))
        await engine.close(A)
        assert engine.sessions == {B: (1, 2, 3)} and engine.suspends == [(A, ExpectedWait(seconds=2.0))]
        assert engine.num_calls["truncate"] == 1

    asyncio.run(main())


def test_equal_beginnings_are_shared_in_whole_blocks():
    async def main() -> None:
        engine = ScriptedEngine([[99], [99]], block_size=4)
        await engine.open(A)
        await generate(engine, A, list(range(10)))
        await engine.close(A)
        await engine.open(B)
        (*_, last) = await generate(engine, B, [*range(8), 50])
        assert (last.usage.num_shared, last.usage.num_computed) == (8, 1)

    asyncio.run(main())


def test_errors_are_typed_and_change_nothing():
    async def main() -> None:
        engine = ScriptedEngine([], max_model_tokens=8)
        await engine.open(A)
        await engine.append(A, [1, 2, 3])
        with pytest.raises(SessionExists):
            await engine.open(A)
        with pytest.raises(SessionNotFound):
            await engine.open(SessionId("c"), parent=B)
        with pytest.raises(SessionNotFound):
            await engine.stats(B)
        with pytest.raises(InvalidRequest):
            await engine.truncate(A, 4)
        with pytest.raises(ContextLengthError, match=r"9 tokens.* 8"):
            await generate(engine, A, [4], max_tokens=5)
        engine.fault = lambda name, number: QueueFull("full") if name == "append" else None
        with pytest.raises(QueueFull):
            await engine.append(A, [4])
        assert engine.sessions == {A: (1, 2, 3)}

    asyncio.run(main())


def test_a_stream_closed_early_keeps_its_ids_and_frees_the_session():
    async def main() -> None:
        engine = ScriptedEngine([[4, 5, 6]])
        await engine.open(A)
        stream = engine.generate(A, [1], GenerateParams())
        assert (await anext(stream)).ids == (4,)
        with pytest.raises(SessionBusy):
            await engine.truncate(A, 0)
        await stream.aclose()
        assert engine.sessions[A] == (1, 4)
        await engine.truncate(A, 1)

    asyncio.run(main())


def test_closing_a_session_cancels_its_stream():
    async def main() -> None:
        engine = ScriptedEngine([[4, 5, 6]])
        await engine.open(A)
        stream = engine.generate(A, [1], GenerateParams())
        await anext(stream)
        await engine.close(A)
        with pytest.raises(Cancelled):
            await anext(stream)

    asyncio.run(main())
