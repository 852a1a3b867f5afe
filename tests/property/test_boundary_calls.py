"""Whatever is called through a boundary gives what it gives without one, however the bytes arrive."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing
from typing import Any

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from boundaries import VOCAB, make_engine, over_sockets
from tenuto.clock import RealClock, VirtualClock, run_virtual
from tenuto.errors import TenutoError
from tenuto.ids import RunId, SessionId, TokenId
from tenuto.protocol.engine import EngineClient, GenerateParams, SamplingParams
from tenuto.protocol.grammar import GrammarSpec
from tenuto.protocol.hints import ExpectedWait, RunHints
from tenuto.testing.boundary import across

NAMES = ("a", "b", "会话")

names = st.sampled_from(NAMES).map(SessionId)
ids = st.lists(st.one_of(st.integers(0, 4), st.sampled_from([49, 50, -1, 2**40])), max_size=9)
params = st.builds(
    GenerateParams,
    max_tokens=st.sampled_from([1, 2, 9, 30, None, 0]),
    sampling=st.builds(
        SamplingParams,
        temperature=st.sampled_from([0.0, 0.7, float("nan")]),
        seed=st.sampled_from([0, 2**63]),
        logit_bias=st.sampled_from([(), ((3, 2.5),)]),
        presence_penalty=st.sampled_from([0.0, 0.5]),
    ),
    stop_ids=st.frozensets(st.integers(0, VOCAB - 1), max_size=2),
    grammar=st.sampled_from(
        [None, None, GrammarSpec(kind="regex", source="1 2 3,4 5"), GrammarSpec(kind="lark", source="坏")]
    ),
    logprobs=st.sampled_from([None, 0, 2]),
    hints=st.builds(RunHints, run=st.sampled_from([None, RunId("跑")]), deadline_s=st.sampled_from([None, 5.0])),
)
generates = st.tuples(st.just("generate"), names, ids, params, st.sampled_from([None, None, 0, 1, 3]))
quick = st.one_of(
    st.tuples(st.just("open"), names, st.one_of(st.none(), names)),
    st.tuples(st.just("append"), names, ids),
    st.tuples(st.just("suspend"), names, st.sampled_from([None, 2.5])),
    st.tuples(st.just("truncate"), names, st.sampled_from([-1, 0, 3, 11])),
    st.tuples(st.just("close"), names),
    st.tuples(st.just("stats"), names),
    st.tuples(st.just("embed"), ids, st.sampled_from(["last", "mean", "first"])),
    st.tuples(st.just("move"), names, names, st.integers(1, 5000)),
)
programs = st.lists(st.one_of(quick, generates, st.tuples(st.just("together"), st.lists(generates, max_size=5))))


class Player:
    """Plays a program on a client, and notes what came out in a form that compares.

    Once a stream was left, an engine apart may have computed a little further before it knew of it. The tokens that
    anybody gets are the same ever after; what they cost, and which were guessed, need not be.
    """

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self._has_left = False

    async def play(self, program: list[tuple[Any, ...]]) -> list[Any]:
        for name in NAMES[:2]:
            await self._client.open(SessionId(name))
        outcomes: list[Any] = [await self._one(*step) for step in program]
        for name in NAMES:
            outcomes.append(await self._one("tokens", SessionId(name)))
        return outcomes

    async def _one(self, call: str, *given: Any) -> Any:
        try:
            return await getattr(self, f"_{call}")(*given)
        except TenutoError as error:
            return type(error), str(error), {n: v for n, v in vars(error).items() if not n.startswith("_")}

    async def _open(self, session: SessionId, parent: SessionId | None) -> None:
        await self._client.open(session, parent=parent)

    async def _append(self, session: SessionId, new: list[TokenId]) -> None:
        await self._client.append(session, new)

    async def _suspend(self, session: SessionId, seconds: float | None) -> None:
        await self._client.suspend(session, ExpectedWait(seconds=seconds))

    async def _truncate(self, session: SessionId, num_tokens: int) -> None:
        await self._client.truncate(session, num_tokens)

    async def _close(self, session: SessionId) -> None:
        await self._client.close(session)

    async def _stats(self, session: SessionId) -> Any:
        stats = await self._client.stats(session)
        return stats.num_tokens, *(() if self._has_left else (stats.num_computed, stats.kv_bytes))

    async def _tokens(self, session: SessionId) -> Any:
        return await self._client.tokens(session)

    async def _embed(self, new: list[TokenId], pooling: Any) -> Any:
        states = await self._client.embed(new, pooling)
        assert states.vector.dtype == np.float32 and states.vector.flags.writeable
        return states.vector.tolist(), None if self._has_left else _timeless(states.usage)

    async def _move(self, session: SessionId, target: SessionId, size: int) -> int:
        """A session leaves and comes back under another name."""
        async with aclosing(self._client.export(session)) as pieces:  # type: ignore[type-var]
            data = b"".join([piece async for piece in pieces])

        async def cut() -> AsyncIterator[bytes]:
            for start in range(0, len(data), size):
                yield data[start : start + size]

        await self._client.import_(target, cut())
        return 0 if self._has_left else len(data)

    async def _generate(self, session: SessionId, new: list[TokenId], wanted: GenerateParams, leave: int | None) -> Any:
        """All deltas; or so many, then the stream is left, and the session cut to what was seen."""
        deltas: list[Any] = []
        before = await self._client.tokens(session)
        async with aclosing(self._client.generate(session, new, wanted)) as stream:  # type: ignore[type-var]
            async for delta in stream:
                if leave is not None and len(deltas) >= leave:
                    break
                deltas.append(delta)
        self._has_left |= leave is not None
        seen = [*before, *new, *(token for delta in deltas for token in delta.ids)]
        held = await self._client.tokens(session)
        assert list(held[: len(seen)]) == seen
        await self._client.truncate(session, len(seen))
        if self._has_left:
            chosen = [(token, *delta.logprobs[i : i + 1]) for delta in deltas for i, token in enumerate(delta.ids)]
            return chosen, deltas[-1].finish if deltas else None
        return [msgspec.structs.replace(delta, usage=_timeless(delta.usage)) for delta in deltas]

    async def _together(self, calls: list[tuple[Any, ...]]) -> Any:
        """Several at once; which step a token comes from may differ, the tokens may not. No session twice."""
        chosen = {call[1]: call for call in calls}.values()
        self._has_left = True
        found = await asyncio.gather(*(self._one(*call) for call in chosen))
        return found


def _timeless(usage: Any) -> Any:
    return None if usage is None else msgspec.structs.replace(usage, queued_s=0.0, ttft_s=0.0, total_s=0.0)


async def directly(program: list[tuple[Any, ...]]) -> list[Any]:
    async with make_engine() as engine:
        return await Player(engine).play(program)


async def through_memory(program: list[tuple[Any, ...]], cut: Callable[[bytes], Iterable[bytes]]) -> list[Any]:
    async with make_engine() as engine, across(engine, VirtualClock(), cut=cut) as client:
        outcomes = await Player(client).play(program)
        levels = (await engine.counters()).levels
        assert levels.num_running == levels.num_waiting == 0, "something runs on"
        return outcomes


@settings(max_examples=120, deadline=None)
@given(program=programs, seed=st.integers(0, 1000))
def test_every_call_gives_what_it_gives_directly(program: list[tuple[Any, ...]], seed: int) -> None:
    rng = random.Random(seed)

    def cut(data: bytes) -> Iterable[bytes]:
        places = sorted(rng.sample(range(len(data) + 1), k=min(len(data), rng.choice([0, 0, 1, 3]))))
        return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]

    expected = run_virtual(directly(program))
    assert _plain(run_virtual(through_memory(program, cut))) == _plain(expected)


@settings(max_examples=25, deadline=None)
@given(program=programs)
def test_the_same_over_a_real_socket(program: list[tuple[Any, ...]]) -> None:
    async def main() -> list[Any]:
        async with make_engine(RealClock()) as engine, over_sockets(engine) as (client, _):
            return await Player(client).play(program)

    assert _plain(asyncio.run(main())) == _plain(run_virtual(directly(program)))


def _plain(outcomes: list[Any]) -> str:
    return repr(outcomes)  # NaN equals itself there
