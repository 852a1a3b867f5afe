"""A workload follows from its shape alone."""

from __future__ import annotations

import random
import re

import msgspec
import pytest
from bench_harness import SMALL, letters, small_workload

from tenuto.bench.shape import MAX_AGENTS, Shape
from tenuto.bench.tool_workload import TOOLS, make_tool_workload
from tenuto.bench.words import make_words
from tenuto.bench.workload import make_texts
from tenuto.errors import ConfigError


def test_the_same_shape_gives_the_same_text_and_another_seed_another() -> None:
    assert make_texts(SMALL) == make_texts(SMALL)
    other = make_texts(msgspec.structs.replace(SMALL, seed=8))
    assert other.system != make_texts(SMALL).system
    assert not set(sum(other.results, ())) & set(sum(make_texts(SMALL).results, ()))


def test_more_agents_or_turns_do_not_change_the_others() -> None:
    more = make_texts(msgspec.structs.replace(SMALL, agents=5, turns=6))
    assert more.system == make_texts(SMALL).system
    assert tuple(results[: SMALL.turns] for results in more.results[: SMALL.agents]) == make_texts(SMALL).results
    assert small_workload(SMALL.with_agents(9)).first_agents(3) == small_workload()


def test_text_has_as_many_words_as_asked_for_and_differs_everywhere() -> None:
    shape = Shape(agents=8, turns=8)
    texts = make_texts(shape)
    results = [text for agent in texts.results for text in agent]
    assert {len(text.split()) for text in results} == {shape.result_words}
    assert len(set(results)) == len(results)
    assert len(texts.system.split()) == shape.prompt_words + len(["You", "work", "through", "tasks", "with", "tools."])
    words = texts.system.split()
    assert len(set(words)) > len(words) / 4, "no word is most of the text"


@pytest.mark.parametrize("num_words", [1, 2, 17, 1000])
def test_words_are_counted_whatever_the_sentences(num_words: int) -> None:
    text = make_words(random.Random(3), num_words)
    assert len(text.split()) == num_words and text.endswith(".") and not text.endswith("..")


def test_there_are_chinese_words_and_numbers_among_them() -> None:
    text = make_words(random.Random(1), 2000)
    assert 10 < len(re.findall(r"[一-鿿]+", text)) < 200
    assert re.search(r"\b\d+\b", text)


def test_tokens_are_counted() -> None:
    workload = small_workload()
    first = workload.pieces[0]
    assert first[0][: len(letters(make_texts(SMALL).system))] == tuple(letters(make_texts(SMALL).system))
    assert workload.num_tokens(0) == sum(map(len, first)) + 4 * 5
    assert workload.num_in == sum(len(p) for pieces in workload.pieces for p in pieces)
    assert workload.num_out == 3 * 4 * 5


@pytest.mark.parametrize(
    ("name", "value"),
    [("agents", 0), ("agents", MAX_AGENTS + 1), ("turns", 0), ("output_tokens", 0), ("tool_s", -1.0)],
)
def test_a_shape_out_of_range_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=name):
        Shape(**{name: value})  # type: ignore[arg-type]


def test_tool_results_name_what_the_next_call_may_copy() -> None:
    workload = make_tool_workload(SMALL)
    assert workload == make_tool_workload(SMALL)
    for results in workload.results:
        assert re.match(r"Order A\d{4} to ", results[0])
        assert all('"next_order": "A' in text for text in results[1:])
    assert {tool.name for tool in TOOLS} == {"look_up_order", "count_stock"}
