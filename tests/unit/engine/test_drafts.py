"""What followed the longest earlier match, against a search through everything."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.engine import drafts
from tenuto.engine.drafts import LONG_MATCH, SuffixIndex
from tenuto.ids import TokenId


def ids(*tokens: int) -> list[TokenId]:
    return [TokenId(token) for token in tokens]


def propose(tokens: list[TokenId], count: int) -> list[TokenId]:
    index = SuffixIndex()
    index.follow(tokens)
    return index.propose(tokens, count)


def test_it_goes_on_as_it_did_before() -> None:
    assert propose(ids(1, 2, 3, 4, 5, 9, 1, 2), 3) == [3, 4, 5]


def test_without_a_match_there_is_no_proposal() -> None:
    assert propose(ids(1, 2, 3), 4) == []
    assert propose([], 4) == []


def test_a_longer_match_is_better_than_a_later_one() -> None:
    assert propose(ids(1, 2, 7, 8, 2, 9, 9, 1, 2), 2) == [7, 8]


def test_of_equal_matches_the_latest() -> None:
    assert propose(ids(1, 2, 7, 1, 2, 8, 1, 2), 1) == [8]


@pytest.mark.parametrize("period", [1, 2, 3])
def test_what_repeats_with_a_period_goes_on_beyond_the_end(period: int) -> None:
    tokens = ids(9, *[i % period for i in range(12)])
    assert propose(tokens, 7) == [(12 + i) % period for i in range(7)]


def test_a_long_match_is_followed_although_another_place_is_later() -> None:
    tokens = ids(*range(10, 20), 13, 14, 50, *range(10, 15))
    index = SuffixIndex()
    index.follow(tokens)
    assert (index.place, index.length) == (5, 5)
    tokens.append(TokenId(15))
    index.follow(tokens)
    assert (index.place, index.length) == (6, 6)
    tokens.append(TokenId(99))
    index.follow(tokens)
    assert (index.place, index.length) == (0, 0)


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(0, 60))
def test_token_by_token_equals_all_at_once_where_a_match_is_fresh(numbers: list[int], cut: int) -> None:
    """Both find a true match; and one at least as long as pairs can tell."""
    tokens = ids(*numbers)
    index = SuffixIndex()
    index.follow(tokens[:cut])
    for end in range(cut + 1, len(tokens) + 1):
        index.follow(tokens[:end])
    longest = max((common(tokens, place) for place in range(1, len(tokens))), default=0)
    if not tokens or longest == 0:
        assert index.place == 0
        return
    assert 0 < index.place < len(tokens)
    assert common(tokens, index.place) >= index.length >= min(longest, 2)
    if longest >= LONG_MATCH:
        assert index.length >= LONG_MATCH


def common(tokens: list[TokenId], place: int) -> int:
    length = 0
    while length < place and tokens[place - 1 - length] == tokens[-1 - length]:
        length += 1
    return length


def test_what_was_cut_off_is_not_proposed() -> None:
    tokens = ids(1, 2, 3, 1, 2, 4, 1, 2)
    index = SuffixIndex()
    index.follow(tokens)
    assert index.propose(tokens, 1) == [4]
    index.forget(5)
    tokens = ids(1, 2, 3, 1, 2)
    index.follow(tokens)
    assert index.propose(tokens, 1) == [3]
    index.forget(5)
    assert index.num_indexed == 5, "nothing was cut off"


def test_the_tables_are_bounded_and_speak_of_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafts, "MAX_INDEXED", 50)
    rng, index = random.Random(1), SuffixIndex()
    tokens: list[TokenId] = []
    for size in (200, *[1] * 300, 49, 51, 120):
        tokens += ids(*(rng.randrange(10_000) for _ in range(size)))
        index.follow(tokens)
        assert index.num_indexed == len(tokens)
        for table in (index._singles, index._pairs, index._fours):
            assert len(table) <= 100
    tokens += tokens[-20:-10]
    index.follow(tokens)
    assert index.propose(tokens, 5) == tokens[-20:-15]


def test_large_ids_are_told_apart() -> None:
    """Keys hold four whole ids."""
    tokens = ids(2**31, 0, 5, 2**31 - 1, 1, 6, 2**31, 0)
    assert propose(tokens, 1) == [5]
