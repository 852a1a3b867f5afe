"""Grammars of llguidance in the engine: the driver holds every id against a twin of the grammar; here, that sessions
that are preempted, forked and cut back give what undisturbed ones give."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest

from embedded_tokenizer import embedded_tokenizer
from tenuto.ids import TokenId
from tenuto.protocol.engine import GenerateParams, SamplingParams
from tenuto.protocol.grammar import GrammarSpec
from tenuto.protocol.messages import ToolSpec
from tenuto.testing.engine_driver import Call, EngineDriver
from tenuto.text.grammar import LLGuidanceCompiler
from tenuto.text.tool_format import HermesFormat

Make = Callable[..., EngineDriver]

CAT = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "colour": {"enum": ["black", "white", "三花"]},
        "lives": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 9}, "maxItems": 4},
        "kitten": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
    },
    "required": ["name", "colour", "lives"],
    "additionalProperties": False,
}
TOOL = ToolSpec(name="养猫", description="", parameters={"type": "object", "properties": CAT["properties"]})
SPECS = [
    GrammarSpec(kind="json_schema", source=json.dumps(CAT)),
    GrammarSpec(kind="regex", source=r"(小猫|cat){2,5}, \d{3}(-\d{4}){1,3}"),
    GrammarSpec(kind="lark", source='start: e\ne: NUM | "(" e (" + " | " - ") e ")"\nNUM: /[1-9][0-9]{0,4}/'),
    HermesFormat().grammar([TOOL], "required", False, []),
]
MAX_TOKENS = 40


@pytest.fixture(scope="module")
def compiler() -> LLGuidanceCompiler:
    return LLGuidanceCompiler(embedded_tokenizer())


@pytest.fixture
def make(make_driver: Make) -> Make:
    return lambda **changes: make_driver(vocab_size=embedded_tokenizer().vocab_size, **changes)


def generate(
    driver: EngineDriver,
    compiler: LLGuidanceCompiler,
    name: str,
    ids: Sequence[int],
    index: int,
    max_tokens: int = MAX_TOKENS,
) -> Call:
    sampling = SamplingParams(temperature=1.0, seed=index, repetition_penalty=1.0 + index % 2 / 4)
    params = GenerateParams(
        max_tokens=max_tokens,
        sampling=sampling,
        stop_ids=frozenset(embedded_tokenizer().eos_ids),
        logprobs=index % 3 or None,
    )
    return driver.generate(name, ids, params, compiler.compile(SPECS[index % len(SPECS)]))


def prompt(index: int) -> list[TokenId]:
    return [TokenId(i * (index + 3) % 40_000) for i in range(9 + index)]


def alone(make: Make, compiler: LLGuidanceCompiler, ids: Sequence[int], index: int) -> Call:
    driver = make()
    driver.open("alone")
    call = generate(driver, compiler, "alone", ids, index)
    driver.run()
    return call


def test_preempted_requests_go_on_where_their_grammar_was(make: Make, compiler: LLGuidanceCompiler) -> None:
    driver = make(num_blocks=32, prefix_cache=False, max_chunk_tokens=5)
    calls = []
    for index in range(24):
        driver.open(f"s{index}")
        calls.append(generate(driver, compiler, f"s{index}", prompt(index), index))
    driver.run()
    assert driver.engine.counters().num_preemptions >= 3
    for index, call in enumerate(calls):
        undisturbed = alone(make, compiler, prompt(index), index)
        assert (call.ids, call.finish, call.num_forced) == (undisturbed.ids, undisturbed.finish, undisturbed.num_forced)
    assert {call.finish for call in calls} >= {"length"} and any(call.finish != "length" for call in calls)


@pytest.mark.parametrize("index", range(len(SPECS)))
def test_forks_of_a_session_cut_within_a_grammar_go_on_apart(
    make: Make, compiler: LLGuidanceCompiler, index: int
) -> None:
    driver = make()
    driver.open("parent")
    first = generate(driver, compiler, "parent", prompt(index), index, max_tokens=3)
    driver.run()
    assert first.finish == "length", "in the middle of a value"
    driver.open("fork", parent="parent")
    driver.open("other", parent="parent")
    new = [TokenId(11), TokenId(12)]
    calls = [
        generate(driver, compiler, name, new, index + place) for place, name in enumerate(("fork", "parent", "other"))
    ]
    driver.step()
    driver.close("fork")  # whoever leaves takes nothing along
    driver.run()
    for place in (1, 2):
        undisturbed = alone(make, compiler, [*prompt(index), *first.ids, *new], index + place)
        assert (calls[place].ids, calls[place].finish) == (undisturbed.ids, undisturbed.finish)


@pytest.mark.parametrize("index", range(len(SPECS)))
def test_a_session_cut_back_generates_under_a_grammar_as_a_new_one(
    make: Make, compiler: LLGuidanceCompiler, index: int
) -> None:
    driver = make()
    driver.open("a")
    first = generate(driver, compiler, "a", prompt(index), index)
    driver.run()
    for num_kept in (len(first.ids) // 2, 3, 0):  # within the value, within its beginning, before it
        driver.truncate("a", len(prompt(index)) + num_kept)
        kept = list(driver.tokens[first.session])
        again = generate(driver, compiler, "a", [TokenId(7)], index + 1)
        driver.run()
        undisturbed = alone(make, compiler, [*kept, TokenId(7)], index + 1)
        assert (again.ids, again.finish) == (undisturbed.ids, undisturbed.finish)
    driver.truncate("a", len(prompt(index)))
    once_more = generate(driver, compiler, "a", [], index)
    driver.run()
    assert (once_more.ids, once_more.finish) == (first.ids, first.finish)
