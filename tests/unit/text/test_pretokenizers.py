from __future__ import annotations

import pytest

from tenuto.errors import UnsupportedModel
from tenuto.text.pretokenizers import splitting

TEXT = "It's 12345  ok!\n\nWE'LL 北京"


def pieces(name: str, text: str = TEXT) -> list[str]:
    normalizer = splitting(name).normalizer()
    text = text if normalizer is None else normalizer.normalize_str(text)
    found = splitting(name).pre_tokenizer().pre_tokenize_str(text)
    return [text[start:stop] for _, (start, stop) in found]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt-2", ["It", "'s", " 12345", " ", " ok", "!", "\n", "\n", "WE", "'", "LL", " 北京"]),
        ("smollm", ["It", "'s", " ", "1", "2", "3", "4", "5", " ", " ok", "!", "\n", "\n", "WE", "'", "LL", " 北京"]),
        ("llama-bpe", ["It", "'s", " ", "123", "45", " ", " ok", "!\n\n", "WE", "'LL", " 北京"]),
        ("qwen2", ["It", "'s", " ", "1", "2", "3", "4", "5", " ", " ok", "!\n\n", "WE", "'LL", " 北京"]),
    ],
)
def test_each_way_of_splitting(name: str, expected: list[str]) -> None:
    assert pieces(name) == expected


def test_qwen_composes_characters_first() -> None:
    assert pieces("qwen2", "e\u0301") == ["é"]


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedModel, match="'brand-new' is not supported; known are chatglm-bpe, command-r"):
        splitting("brand-new")
