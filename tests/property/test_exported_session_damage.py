"""Exported sessions: whatever the history, the continuation is the same; whatever the damage, it is told and nothing
changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenuto.clock import run_virtual
from tenuto.engine import session_file
from tenuto.errors import ContextLengthError, InvalidRequest, NeverFits, SessionFileError, SessionNotFound
from tenuto.ids import SessionId, TokenId
from transfers import VOCAB, A, B, Place, cut

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=20)),
        st.tuples(st.just("say"), st.integers(1, 8)),
        st.tuples(st.just("truncate"), st.integers(0, 40)),
    ),
    min_size=1,
    max_size=6,
)
SIZES = st.fixed_dictionaries({"block_size": st.integers(1, 9), "prefix_cache": st.booleans()})


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a session has many."""
    monkeypatch.setattr(session_file, "MAX_PAYLOAD_BYTES", 48)
    monkeypatch.setattr(session_file, "IDS_PER_GROUP", 12)


async def after(place: Place, steps: list[tuple[str, Any]]) -> None:
    """A session with some history."""
    await place.client.open(A)
    for kind, value in steps:
        tokens = await place.client.tokens(A)
        if kind == "append":
            await place.client.append(A, [TokenId(i) for i in value])
        elif kind == "say" and tokens:
            await place.say(A, (), value)
        elif kind == "truncate":
            await place.client.truncate(A, min(value, len(tokens)))


@settings(max_examples=60, deadline=None)
@given(STEPS, SIZES, SIZES, st.integers(1, 60))
def test_it_goes_on_as_it_would_have(steps: list[Any], here: dict[str, Any], there: dict[str, Any], size: int) -> None:
    async def main() -> None:
        one, other = Place(**{**here, "num_blocks": 300}), Place(**{**there, "num_blocks": 300})
        async with one.client, other.client:
            await after(one, steps)
            before = await one.client.stats(A)
            data = await one.export(A)
            assert await one.client.stats(A) == before
            await other.client.import_(B, cut(data, size))
            stats = await other.client.stats(B)
            assert (stats.num_tokens, stats.num_computed) == (before.num_tokens, before.num_computed)
            assert await other.say(B, [1]) == await one.say(A, [1])
            for place, session in ((one, A), (other, B)):
                await place.client.close(session)
                assert place.core.num_owned_blocks == 0

    run_virtual(main())


async def refused(there: Place, data: bytes, size: int = 64) -> Exception:
    """The error, after it was seen that it left nothing behind."""
    before = there.core.levels()
    with pytest.raises((SessionFileError, ContextLengthError, NeverFits, InvalidRequest)) as caught:
        await there.client.import_(B, cut(data, size))
    assert there.core.levels() == before
    there.core.check_invariants()
    with pytest.raises(SessionNotFound):
        await there.client.stats(B)
    return caught.value


async def exported() -> tuple[Place, bytes]:
    place = Place()
    async with place.client:
        await after(place, [("append", list(range(30))), ("say", 5)])
        return place, await place.export(A)


def test_every_byte_counts() -> None:
    """One bit turned anywhere, a byte left out, the end cut off anywhere, something added: all of it is noticed."""

    async def main() -> None:
        _, data = await exported()
        there = Place()
        async with there.client:
            for at in range(len(data)):
                broken = bytearray(data)
                broken[at] ^= 1 << at % 8
                await refused(there, bytes(broken))
                await refused(there, data[:at])
                await refused(there, data[:at] + data[at + 1 :])
            await refused(there, data + b"\0")
            await refused(there, data + data)
            await there.client.import_(B, cut(data))

    run_virtual(main())


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_damage_is_told(data: st.DataObject) -> None:
    async def main() -> None:
        _, whole = await exported()
        first, end = sorted(data.draw(st.tuples(st.integers(0, len(whole)), st.integers(0, len(whole)))))
        broken = whole[:first] + data.draw(st.binary(max_size=40)) + whole[end:]
        there = Place()
        async with there.client:
            if broken != whole:
                await refused(there, broken, data.draw(st.integers(1, 100)))

    run_virtual(main())


def resealed(data: bytes, change: Any) -> bytes:
    """An export whose frames `change` has altered, with right digests: what somebody who knows the form can make."""
    digest = hashlib.blake2b(data[:12], digest_size=16)
    made, at, number = bytearray(data[:12]), 12, 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "little")
        for payload in change(number, data[at + 4 : at + 4 + length]):
            frame = len(payload).to_bytes(4, "little") + payload
            digest.update(frame)
            made += frame + digest.digest()
            digest.update(digest.digest())
        at, number = at + 20 + length, number + 1
    return bytes(made)


LIES: list[tuple[dict[str, Any], str]] = [
    ({"num_tokens": 10**9}, "context"),
    ({"num_tokens": -1}, "make no sense"),
    ({"num_tokens": 2**40, "num_computed": 2**40}, "make no sense"),
    ({"num_tokens": 34}, "due"),
    ({"num_tokens": 36}, "due"),
    ({"num_computed": 36}, "make no sense"),
    ({"num_computed": 33}, "due"),
    ({"num_computed": 0}, "due"),
    ({"token_bytes": 0}, "make no sense"),
    ({"token_bytes": 2**60}, "make no sense"),
    ({"token_bytes": 16, "tokens_per_group": 2}, "bytes a token"),
    ({"tokens_per_group": 0}, "make no sense"),
    ({"tokens_per_group": 7}, "larger than a piece"),
    ({"fingerprint": "another"}, "fingerprint"),
    ({"kv_form": 5}, "header"),
    ({"model": None}, "header"),
]


@pytest.mark.parametrize(("lie", "told"), LIES, ids=lambda value: str(value)[:40])
def test_lies_with_right_digests_are_refused(lie: dict[str, Any], told: str) -> None:
    async def main() -> None:
        _, data = await exported()

        def change(number: int, payload: bytes) -> list[bytes]:
            return [json.dumps(json.loads(payload) | lie).encode()] if number == 0 else [payload]

        there = Place()
        async with there.client:
            assert told in str(await refused(there, resealed(data, change)))
            await there.client.import_(B, cut(resealed(data, lambda number, payload: [payload])))

    run_virtual(main())


@pytest.mark.parametrize("ids", [(VOCAB,), (2**32 - 1,), (0, 0, VOCAB)])
def test_ids_that_the_model_has_not_are_refused(ids: tuple[int, ...]) -> None:
    async def main() -> None:
        _, data = await exported()
        spelled = b"".join(i.to_bytes(4, "little") for i in ids)

        def change(number: int, payload: bytes) -> list[bytes]:
            return [spelled + payload[len(spelled) :]] if number == 1 else [payload]

        there = Place()
        async with there.client:
            assert "out of range" in str(await refused(there, resealed(data, change)))

    run_virtual(main())


def test_frames_split_or_missing_are_refused_but_kv_may_end_early() -> None:
    async def main() -> None:
        _, data = await exported()
        frames: list[bytes] = []
        resealed(data, lambda number, payload: frames.append(payload) or [payload])
        there = Place()
        async with there.client:
            for place in range(len(frames)):
                half = len(frames[place]) // 2
                if half:
                    await refused(
                        there, resealed(data, lambda n, p, at=place, h=half: [p[:h], p[h:]] if n == at else [p])
                    )
                if not 4 <= place < len(frames) - 1:  # groups of KV look alike: without one of them it ends early
                    await refused(there, resealed(data, lambda n, p, at=place: [] if n == at else [p]))
                await refused(there, resealed(data, lambda n, p, at=place: [p, p] if n == at else [p]))
            cut_short = resealed(data, lambda n, p: [] if n == len(frames) - 2 else [p])
            await refused(there, cut_short[:-1])
            await there.client.import_(B, cut(cut_short))
            assert 0 < (await there.client.stats(B)).num_computed < 34
            await there.say(B)

    run_virtual(main())


def test_a_source_that_breaks_leaves_nothing() -> None:
    async def main() -> None:
        _, data = await exported()
        there = Place()
        async with there.client:
            for at in range(0, len(data), 30):

                async def broken(end: int = at) -> AsyncIterator[bytes]:
                    yield data[:end]
                    raise ConnectionResetError

                before = there.core.levels()
                with pytest.raises(ConnectionResetError):
                    await there.client.import_(SessionId("x"), broken())
                assert there.core.levels() == before

    run_virtual(main())
