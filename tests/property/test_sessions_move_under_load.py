"""Sessions are exported and imported while others compute in a pool that is too small for all: nobody's KV is touched.

The fake KV notices every slot that is read without having been written for these tokens, so a copy to or from a block
that meanwhile belongs to somebody else changes the next token.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.clock import run_virtual
from tenuto.engine import session_file
from tenuto.errors import SessionBusy, SessionNotFound
from tenuto.ids import SessionId
from transfers import VOCAB, Place


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_file, "MAX_PAYLOAD_BYTES", 48)


async def agent(place: Place, name: str, rng: random.Random) -> None:
    session = SessionId(name)
    await place.client.open(session)
    for _ in range(5):  # with what a mover adds to its copy, at most 59 tokens: the context holds 64
        await place.say(session, [rng.randrange(VOCAB) for _ in range(rng.randrange(1, 8))], rng.randrange(1, 5))
        await asyncio.sleep(rng.random() * 4)
    await place.client.close(session)


async def mover(here: Place, there: Place, names: list[str], rng: random.Random) -> int:
    num_moved = 0
    for number in range(12):
        copy = SessionId(f"copy {number} of {rng.random()}")
        pieces = here.client.export(SessionId(rng.choice(names)))

        async def slowly(pieces: AsyncIterator[bytes] = pieces) -> AsyncIterator[bytes]:
            async for piece in pieces:
                yield piece
                if rng.random() < 0.3:
                    await asyncio.sleep(rng.random() * 2)

        try:
            await there.client.import_(copy, slowly())
        except (SessionBusy, SessionNotFound):
            await asyncio.sleep(1)
            continue
        num_moved += 1
        await there.say(copy, [rng.randrange(VOCAB)], 3)
        await there.client.close(copy)
    return num_moved


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(16, 40), st.booleans())
def test_nobody_s_kv_is_touched(seed: int, num_blocks: int, prefix_cache: bool) -> None:
    async def main() -> None:
        rng = random.Random(seed)
        places = [Place(num_blocks=num_blocks, max_model_tokens=64, prefix_cache=prefix_cache) for _ in range(2)]
        names = ["a", "b", "c"]
        async with places[0].client, places[1].client:
            agents = [agent(place, name, random.Random(seed + i)) for i, name in enumerate(names) for place in places]
            moves = [mover(places[i], places[j], names, rng) for i, j in ((0, 1), (1, 0), (0, 0))]
            await asyncio.gather(*agents, *moves)
            for place in places:
                place.core.check_invariants()
                assert place.core.num_owned_blocks == 0 and place.core.levels().num_sessions == 0

    run_virtual(main())
