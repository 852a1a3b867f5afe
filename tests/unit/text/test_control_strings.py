from __future__ import annotations

import re

import pytest

from tenuto.text.control_strings import ControlStrings
from varied_text import varied_lines


def test_the_longest_at_the_leftmost_place_counts() -> None:
    strings = ControlStrings(["<a", "<a>", "<a><b>", "x", "<<"])
    assert list(strings.split("1<a><b><a>2<<a>x")) == [
        ("1", "<a><b>"),
        ("", "<a>"),
        ("2", "<<"),
        ("a>", "x"),
        ("", None),
    ]
    assert [at for at, _ in strings.everywhere("<<a>")] == [0, 1], "overlapping ones too"


def test_split_equals_a_regular_expression() -> None:
    strings = ["<s>", "</s>", "[INST]", "<|im_end|>", "==", "天", "1️⃣"]
    expected = re.compile("|".join(map(re.escape, sorted(strings, key=len, reverse=True))))
    for line in varied_lines(500, seed=42):
        found = [string for _, string in ControlStrings(strings).split(line) if string is not None]
        assert found == expected.findall(line)


def test_white_space_around_is_swallowed_where_the_token_says() -> None:
    strings = ControlStrings(["<l>", "<r>"])
    pieces = list(strings.split("a \t<l> b\u3000<r>\n c\x1c<l>", frozenset(["<l>"]), frozenset(["<r>"])))
    assert pieces == [("a", "<l>"), (" b\u3000", "<r>"), ("c\x1c", "<l>"), ("", None)], "U+001C is no white space"


def test_no_strings_find_nothing() -> None:
    assert list(ControlStrings([]).split("a")) == [("a", None)] and not ControlStrings([""])


@pytest.mark.parametrize("text", [" " * 500_000, "<" * 500_000, "<|" * 250_000, "<l> " * 100_000])
def test_one_pass_whatever_the_text(text: str) -> None:
    """Quadratic cost would not end within the test's time limit."""
    many = ControlStrings([*(f"<|reserved_{i}|>" for i in range(5_000)), "<l>"])
    pieces = list(many.split(text, frozenset(["<l>"]), frozenset(["<l>"])))
    assert sum(len(a) + len(b or "") for a, b in pieces) <= len(text)
