"""B34: stop strings over several tokens, near misses, one the prefix of another."""

from __future__ import annotations

import pytest

from tenuto.chat.stop_strings import StopMatcher


def pieces(stops: list[str], *texts: str) -> tuple[list[str], bool]:
    matcher = StopMatcher(stops)
    emitted = [matcher.push(text) for text in texts]
    return [*emitted, "" if matcher.matched else matcher.flush()], matcher.matched


def test_a_possible_beginning_is_held_back_until_it_is_known():
    assert pieces(["STOPHERE"], "ab", "STOP", "HE", "RE", "more") == (["ab", "", "", "", "", ""], True)


def test_a_near_miss_is_released():
    assert pieces(["STOPHERE"], "STOP", "HEX", "!") == (["", "STOPHEX", "!", ""], False)


def test_what_is_held_at_the_end_is_text():
    assert pieces(["STOP"], "ab ST") == (["ab ", "ST"], False)


@pytest.mark.parametrize("stops", [["STOP", "STOPHERE"], ["STOPHERE", "STOP"]])
def test_of_two_with_one_beginning_the_shorter_is_complete_first(stops):
    assert pieces(stops, "xSTO", "PHERE") == (["x", "", ""], True)


def test_of_two_that_end_together_the_longer_wins():
    assert pieces(["BC", "ABC"], "xAB", "C") == (["x", "", ""], True)


def test_the_cut_does_not_depend_on_the_pieces():
    text, stops = "一二abcd三四", ["bcd三", "cd", "四"]
    for size in range(1, len(text) + 1):
        emitted, matched = pieces(stops, *(text[i : i + size] for i in range(0, len(text), size)))
        assert ("".join(emitted), matched) == ("一二ab", True), size


def test_self_overlapping_beginnings():
    assert pieces(["aab"], "aa", "a", "b") == (["", "a", "", ""], True)


def test_no_stops_hold_nothing():
    assert pieces([], "any", "text") == (["any", "text", ""], False)
