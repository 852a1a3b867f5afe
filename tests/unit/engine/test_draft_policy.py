from __future__ import annotations

import pytest

from tenuto.engine.draft_policy import UNKNOWN, Estimate, class_of, draft_length, learned, worth


def estimates(*chances: float) -> tuple[Estimate, ...]:
    return tuple(Estimate(chance, 8) for chance in chances)


def test_classes_of_match_lengths() -> None:
    assert [class_of(n) for n in (1, 2, 3, 4, 7, 8, 15, 16, 1000)] == [0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert len(UNKNOWN) == class_of(1000) + 1


def test_a_row_is_worth_more_the_fewer_share_the_weights() -> None:
    assert worth(1, 12.0) == pytest.approx(1.3 / 13)
    assert worth(8, 12.0) == pytest.approx(1.3 * 0.4)
    assert worth(1000, 12.0) == 0.97


def test_drafts_go_on_while_all_of_them_are_likely_right() -> None:
    known = estimates(0.1, 0.5, 0.9, 0.9, 0.9)
    assert draft_length(known, 4, 0.4, 20) == 8  # 0.9 ** 8 is 0.43
    assert draft_length(known, 4, 0.4, 5) == 5
    assert draft_length(known, 2, 0.2, 20) == 4  # 0.5, 0.25, 0.225, 0.2025, 0.18
    assert draft_length(known, 1, 0.2, 20) == 0
    assert draft_length(known, 4, 0.4, 0) == 0


def test_a_match_gets_better_as_it_goes_on() -> None:
    known = estimates(0.9, 0.9, 0.9, 0.99, 0.99)
    assert draft_length(known, 1, 0.4, 50) > draft_length(estimates(0.9, 0.9, 0.9, 0.9, 0.9), 1, 0.4, 50)


def test_misses_end_drafts_and_hits_bring_them_back() -> None:
    known = UNKNOWN
    least = worth(8, 12.0)
    num_misses = 0
    while draft_length(known, 8, least, 8):
        known = learned(known, 8, False)
        num_misses += 1
    assert num_misses <= 4
    for _ in range(200):
        known = learned(known, 8, False)
    num_hits = 0
    while draft_length(known, 8, least, 4) < 4:
        known = learned(known, 8, True)
        num_hits += 1
    assert num_hits <= 100, "however long it went badly, it is forgotten"
    assert (*known[:3], known[4]) == (*UNKNOWN[:3], UNKNOWN[4]), "other classes learn nothing from it"


def test_an_estimate_settles_at_the_frequency() -> None:
    one = Estimate(0.9, 1)
    for number in range(400):
        one = one.after(number % 4 == 0)
    assert 0.1 < one.chance < 0.4


def test_an_estimate_stays_a_chance() -> None:
    for hit in (True, False):
        one = Estimate(0.5, 4)
        for _ in range(1000):
            one = one.after(hit)
            assert 0 <= one.chance <= 1
