"""Where text may be cut: the ids of the parts are those of the whole."""

from __future__ import annotations

import pytest

from made_tokenizers import SPACE
from real_tokenizers import GPT2, LLAMA3, QWEN2
from tenuto.text.cuts import BetweenStrangers, before_spaces, between_words, never, outside, parts_of
from tenuto.text.pretokenizers import splitting
from varied_text import varied_lines

NAMES = ("gpt-2", "smollm", "llama-bpe", "qwen2", "qwen35", "tekken", "gpt-4o", "deepseek-v3", "default")


def split(name: str, text: str) -> list[str]:
    return [text[a:b] for _, (a, b) in splitting(name).pre_tokenizer().pre_tokenize_str(text)]


@pytest.mark.parametrize("name", NAMES)
def test_every_pre_tokenizer_splits_where_cuts_are_allowed(name: str) -> None:
    num_cuts = 0
    for line in varied_lines(70, seed=41):
        whole = split(name, line)
        for at in range(1, len(line)):
            if between_words(line, at):
                num_cuts += 1
                assert split(name, line[:at]) + split(name, line[at:]) == whole, (line, at)
    assert num_cuts > 200


def test_patterns_are_those_of_the_models() -> None:
    for name, pattern in (("gpt-2", GPT2), ("llama-bpe", LLAMA3), ("qwen2", QWEN2)):
        assert name == "gpt-2" or splitting(name).patterns == (pattern,)


def test_parts_are_near_the_size_asked_for_and_make_the_whole() -> None:
    text = "word " * 100_000
    parts = list(parts_of(text, between_words, 1000))
    assert "".join(parts) == text and all(900 < len(p) <= 1001 for p in parts[:-1])
    assert list(parts_of("", between_words)) == [""] and list(parts_of("a" * 10, never, 3)) == ["a" * 10]
    late = "a" * 5000 + " b" * 5000
    assert [len(p) for p in parts_of(late, between_words, 1000)][:2] == [5000, 1000]


@pytest.mark.parametrize("text", ["a" * 300_000, " " * 300_000, "天" * 300_000])
def test_text_without_a_place_to_cut_is_searched_once(text: str) -> None:
    asked = 0

    def rule(text: str, at: int) -> bool:
        nonlocal asked
        asked += 1
        return between_words(text, at)

    assert list(parts_of(text, rule, 1000)) == [text]
    assert asked <= len(text) + 10_000


def test_strangers_are_known_characters_that_no_token_holds_side_by_side() -> None:
    rule = BetweenStrangers(lambda: ["a", "b", "c", SPACE, "ab", "b" + SPACE], SPACE)
    found = {a + b: rule(f"x{a}{b}x", 2) for a in "abc é" for b in "abc é"}
    assert not found["ab"] and not found["b "], "a token may reach over these"
    assert found["ba"] and found["a "] and found["  "]
    assert not found["aé"] and not found["éa"], "unknown characters may become one token together"


def test_tokens_that_stand_as_a_whole_are_not_cut() -> None:
    assert outside(["ab", " cd", "\n\n"], between_words) is between_words
    for token in ("a b", "天，", "x\ny"):
        assert outside([token], between_words) is never
    assert outside(["x y"], before_spaces) is never
