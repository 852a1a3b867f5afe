"""Real vocabularies: our ids against those of the libraries they were made for, on varied text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import chain
from pathlib import Path

import pytest
import tokenizers

from real_tokenizers import GPT2, LLAMA3, O200K, QWEN35, Compared, deepseek, deepseek_gguf, mistral, qwen, tekken
from tenuto.text.detokenizer import Detokenizer
from varied_text import found_lines, varied_lines

Load = Callable[[], Compared]

NUM_LINES = 2_500
SOAK_LINES = 60_000  # generated, and as many found; for each of the vocabularies

QUICK: dict[str, Load] = {
    "mistral-v3": lru_cache(lambda: mistral("v3")),
    "deepseek": lru_cache(deepseek),
    "qwen2": lru_cache(qwen),
}
ALL: dict[str, Load] = {
    **QUICK,
    "mistral-v1": lambda: mistral("v1"),
    "tekken": tekken,
    # Qwen's vocabulary under other names' splitting: these are what is compared.
    "llama3": lambda: qwen("llama-bpe", LLAMA3, nfc=False),
    "gpt2": lambda: qwen("gpt-2", GPT2, nfc=False),
    "qwen3.5": lambda: qwen("qwen35", QWEN35),
    "gpt-4o": lambda: qwen("gpt-4o", O200K, nfc=False),
    "deepseek-gguf": deepseek_gguf,
}


def assert_same(compared: Compared, lines: Iterable[str]) -> int:
    """The same ids, which stream back as the text they were made of. Returns the number of lines."""
    ours, count = compared.ours, 0
    for line in lines:
        # Only DeepSeek's reference reads control tokens in text.
        ids = ours.encode_with_control(line) if ours.control and not ours.strips_space else ours.encode(line)
        assert ids == compared.encode(line), repr(line)
        detokenizer = Detokenizer(ours, skip_control=False)
        assert "".join([*map(detokenizer.push, ids), detokenizer.finish()]) == compared.as_read(line)
        count += 1
    return count


@pytest.mark.parametrize("name", QUICK)
def test_ids_equal_the_reference(name: str) -> None:
    assert assert_same(QUICK[name](), varied_lines(NUM_LINES, seed=3)) == NUM_LINES


@pytest.mark.parametrize("name", QUICK)
def test_long_texts_in_parts_equal_the_reference(name: str) -> None:
    text = "".join(varied_lines(4_000, seed=4))
    assert len(text) > 150_000
    assert_same(QUICK[name](), [text, text.replace(" ", "").replace("\n", ""), "天" * 70_000 + "，" + "地" * 70_000])


@pytest.mark.soak
@pytest.mark.parametrize("name", ALL)
def test_ids_equal_the_reference_on_many_lines(name: str) -> None:
    libraries = Path(tokenizers.__file__).parent.parent
    lines: Iterator[str] = chain(
        varied_lines(SOAK_LINES, seed=5), found_lines(libraries, SOAK_LINES, seed=6), ["".join(varied_lines(50_000, 7))]
    )
    assert assert_same(ALL[name](), lines) > 2 * SOAK_LINES - 1
