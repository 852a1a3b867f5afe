"""Generation under a grammar: masks, jump-forward, and what can go wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tenuto.engine.generation import MAX_FORCED
from tenuto.errors import GrammarError
from tenuto.ids import SessionId, TokenId
from tenuto.protocol.engine import GenerateParams
from tenuto.testing.engine_driver import EngineDriver
from tenuto.testing.fake_grammar import PatternGrammar

Make = Callable[..., EngineDriver]
ANY = frozenset(range(50))


def pattern(*places: int | frozenset[int]) -> PatternGrammar:
    return PatternGrammar([p if isinstance(p, frozenset) else frozenset({p}) for p in places], 50)


def test_forced_ids_take_no_step_each(make_driver: Make) -> None:
    driver = make_driver()
    driver.open("a")
    grammar = pattern(1, 2, 3, frozenset({4, 5}), 6, 7, 8, frozenset({9, 10, 11}), 12)
    call = driver.generate("a", [0], GenerateParams(max_tokens=50), grammar)
    assert call.ids == [1, 2, 3], "forced before anything is sampled"
    driver.run()
    assert call.finish == "grammar"
    assert len(call.ids) == 9 and call.num_forced == 7
    assert call.usage is not None and call.usage.num_steps == 2
    assert call.usage.num_prompt == call.usage.num_computed == 1
    assert driver.engine.counters().num_forced_tokens == 7


def test_a_grammar_that_forces_everything_needs_no_step(make_driver: Make) -> None:
    driver = make_driver()
    driver.open("a")
    call = driver.generate("a", [0], GenerateParams(), pattern(1, 2, 3))
    assert call.done and call.finish == "grammar" and call.ids == [1, 2, 3]
    assert driver.engine.stats(SessionId("a"), 0.0).num_computed == 0
    driver.generate("a", [4], GenerateParams(max_tokens=2))
    driver.run()


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 4])
def test_max_tokens_counts_forced_ids(make_driver: Make, max_tokens: int) -> None:
    driver = make_driver()
    driver.open("a")
    call = driver.generate("a", [0], GenerateParams(max_tokens=max_tokens), pattern(1, ANY, 2, 3, 4))
    driver.run()
    assert len(call.ids) == max_tokens and call.finish == "length"


LONG_RUN = [i % 47 for i in range(2 * MAX_FORCED + 90)]  # more than is added at once


def long_driver(make_driver: Make, **changes: int) -> EngineDriver:
    return make_driver(**{"num_blocks": 400, "max_model_tokens": 1500, **changes})


def test_a_long_forced_run_is_added_piece_by_piece(make_driver: Make) -> None:
    driver = long_driver(make_driver)
    for name in ("a", "b"):
        driver.open(name)
    call = driver.generate("a", [0], GenerateParams(logprobs=1), pattern(ANY, *LONG_RUN, ANY, 5, ANY))
    beside = driver.generate("b", [3], GenerateParams(max_tokens=12))
    lengths = []
    while not call.done:
        before = len(call.ids)
        assert driver.step()
        lengths.append(len(call.ids) - before)
    assert call.finish == "grammar" and call.ids[1:-3] == LONG_RUN
    assert call.num_forced == len(LONG_RUN) + 1
    assert max(lengths) == MAX_FORCED + 1 and [n for n in lengths if n > 3] == [MAX_FORCED + 1, MAX_FORCED, 90]
    driver.run()
    assert len(beside.ids) == 12


@pytest.mark.parametrize("max_tokens", [MAX_FORCED - 1, MAX_FORCED, MAX_FORCED + 1, 2 * MAX_FORCED, 2 * MAX_FORCED + 3])
def test_max_tokens_within_a_long_forced_run(make_driver: Make, max_tokens: int) -> None:
    for places in (LONG_RUN, [ANY, *LONG_RUN], LONG_RUN[:max_tokens]):
        driver = long_driver(make_driver)
        driver.open("a")
        call = driver.generate("a", [0], GenerateParams(max_tokens=max_tokens), pattern(*places))
        driver.run()
        assert len(call.ids) == max_tokens
        assert call.finish == ("grammar" if places == LONG_RUN[:max_tokens] else "length")


def test_a_long_forced_run_survives_preemption_and_cancelling(make_driver: Make) -> None:
    outputs = set()
    for num_blocks in (210, 600):
        driver = long_driver(make_driver, num_blocks=num_blocks, prefix_cache=False)
        calls = []
        for name in ("a", "b", "c"):
            driver.open(name)
            places = (ANY, *LONG_RUN, ANY, *LONG_RUN[:20], ANY)
            calls.append(driver.generate(name, [ord(name) % 50] * 10, GenerateParams(), pattern(*places)))
        driver.run()
        assert (driver.engine.counters().num_preemptions > 0) == (num_blocks == 210)
        assert all(c.finish == "grammar" for c in calls)
        outputs.add(tuple(tuple(c.ids) for c in calls))
    assert len(outputs) == 1
    driver.open("d")
    left = driver.generate("d", [1], GenerateParams(), pattern(*LONG_RUN))
    driver.step()
    driver.cancel(left)
    again = driver.generate("d", [2], GenerateParams(max_tokens=3))
    driver.run()
    assert len(again.ids) == 3


def test_stop_ids_end_a_grammar_too(make_driver: Make) -> None:
    driver = make_driver()
    driver.open("a")
    params = GenerateParams(stop_ids=frozenset({TokenId(2)}))
    call = driver.generate("a", [0], params, pattern(frozenset({5, 6}), 1, 2, 3))
    driver.run()
    assert call.finish == "stop" and call.ids[1:] == [1, 2]


def test_a_grammar_gone_wrong_fails_its_request_only(make_driver: Make) -> None:
    class Refusing(PatternGrammar):
        def accept(self, token: TokenId) -> bool:
            return False

    driver = make_driver()
    for name in ("a", "b", "c"):
        driver.open(name)
    empty = driver.generate("a", [1, 2], GenerateParams(), pattern(ANY, frozenset(), ANY))
    refusing = driver.generate("b", [3, 4], GenerateParams(), Refusing([ANY, ANY], 50))
    fine = driver.generate("c", [5, 6], GenerateParams(max_tokens=10))
    driver.run()
    assert isinstance(empty.error, GrammarError) and len(empty.ids) == 1
    assert isinstance(refusing.error, GrammarError) and refusing.ids == []
    assert len(fine.ids) == 10
    driver.close("c")
    assert driver.engine.num_owned_blocks == 0


def test_only_failing_requests_leave_no_step(make_driver: Make) -> None:
    driver = make_driver()
    driver.open("a")
    call = driver.generate("a", [1], GenerateParams(), pattern(frozenset()))
    assert driver.begin() is None
    assert isinstance(call.error, GrammarError)


def test_grammar_state_survives_preemption(make_driver: Make) -> None:
    outputs = set()
    for num_blocks in (12, 64):
        driver = make_driver(num_blocks=num_blocks, prefix_cache=False)
        calls = []
        for name in ("a", "b"):
            driver.open(name)
            places = [frozenset(range(i % 7, 40 - i % 5)) if i % 3 else frozenset({i % 50}) for i in range(30)]
            params = GenerateParams(max_tokens=30)
            calls.append(driver.generate(name, [ord(name) % 50] * 10, params, PatternGrammar(places, 50)))
        driver.run()
        assert (driver.engine.counters().num_preemptions > 0) == (num_blocks == 12)
        assert all(c.finish == "grammar" for c in calls)
        outputs.add(tuple(tuple(c.ids) for c in calls))
    assert len(outputs) == 1


def test_usage_speaks_of_the_prompt_though_forced_ids_are_shared_too(make_driver: Make) -> None:
    driver = make_driver(block_size=4)
    usages = []
    for name in ("a", "b"):
        driver.open(name)
        grammar = pattern(*range(1, 11), ANY, ANY)
        call = driver.generate(name, [30, 31, 32, 33, 34], GenerateParams(max_tokens=12), grammar)
        driver.run()
        usages.append(call.usage)
    assert [(u.num_prompt, u.num_held, u.num_shared, u.num_computed) for u in usages] == [(5, 0, 0, 5), (5, 0, 5, 0)]
