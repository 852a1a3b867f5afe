"""Drafts in the engine: the driver holds every id against the naive model, whatever was drafted on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec
import pytest

from tenuto.engine import Batch, EngineConfig, Output, generation, speculation
from tenuto.engine.draft_policy import UNKNOWN, Estimate
from tenuto.errors import StepFailed
from tenuto.ids import SessionId, TokenId
from tenuto.protocol.engine import GenerateParams, SamplingParams
from tenuto.testing.engine_driver import Call, EngineDriver
from tenuto.testing.fake_grammar import PatternGrammar

Make = Callable[..., EngineDriver]
VOCAB = 50
SURE = tuple(Estimate(0.99, 16) for _ in UNKNOWN)


@pytest.fixture
def make(make_driver: Make) -> Make:
    """Speculation on, and a row all but free."""
    return lambda **changes: make_driver(**{"speculation": "suffix", "step_rows": 1000.0, **changes})


def start(driver: EngineDriver, name: str, ids: Sequence[int], max_tokens: int = 60, **params: object) -> Call:
    driver.open(name)
    driver.engine._sessions[SessionId(name)].estimates = SURE
    return driver.generate(name, ids, GenerateParams(max_tokens=max_tokens, **params))  # type: ignore[arg-type]


PROMPT = [i * 7 % 20 for i in range(30)]


def plain(make: Make, calls: Sequence[dict[str, object]]) -> list[list[TokenId]]:
    driver = make(speculation="off")
    started = [start(driver, f"s{n}", PROMPT[n:], **params) for n, params in enumerate(calls)]  # type: ignore[arg-type]
    driver.run()
    return [call.ids for call in started]


KINDS: list[dict[str, object]] = [
    {},
    {"sampling": SamplingParams(temperature=1.0, seed=5)},
    {"sampling": SamplingParams(presence_penalty=0.5), "logprobs": 2},
    {"sampling": SamplingParams(repetition_penalty=1.2, temperature=0.5), "logprobs": 0},
    {"sampling": SamplingParams(logit_bias=((TokenId(3), -2.0),))},
]


def test_the_same_ids_in_fewer_steps(make: Make) -> None:
    driver = make(num_blocks=200, max_batch_tokens=256)
    calls = [start(driver, f"s{n}", PROMPT[n:], **params) for n, params in enumerate(KINDS)]  # type: ignore[arg-type]
    driver.run()
    assert [call.ids for call in calls] == plain(make, KINDS)
    counters = driver.engine.counters()
    assert 0 < counters.num_accepted_tokens < counters.num_drafted_tokens
    assert counters.num_sampled_tokens == 60 * len(KINDS)
    assert counters.num_sampled_tokens == counters.num_decode_slices + counters.num_accepted_tokens
    assert counters.num_computed_tokens == sum(len(PROMPT[n:]) + 59 for n in range(len(KINDS)))
    for call in calls:
        assert call.usage is not None
        assert call.usage.num_steps == 60 - call.usage.num_accepted < 60
        stats = driver.engine.stats(call.session, driver.now)
        assert stats.total_accepted_tokens == call.usage.num_accepted < stats.total_drafted_tokens


def test_off_drafts_nothing(make: Make) -> None:
    driver = make(speculation="off")
    start(driver, "a", PROMPT)
    driver.run()
    counters = driver.engine.counters()
    assert (counters.num_drafted_tokens, counters.num_decode_slices, counters.num_steps) == (0, 60, 60)


def test_each_right_draft_comes_as_a_delta_of_its_own(make: Make) -> None:
    """As without drafts: whoever stops after an id was never told more than it asked for."""
    driver = make()
    call = start(driver, "a", PROMPT)
    driver.begin()
    while driver.batch is not None:
        output = driver.executor.execute(driver.batch)
        deltas = driver.engine.commit(driver.batch, output, 0.0)
        assert len(deltas) == 1 + sum(output.num_accepted.values())
        assert all(delta.tokens is not None and len(delta.tokens.ids) == 1 for delta in deltas)
        driver._settle(deltas)
        driver.batch = None
        driver.begin()
    assert call.done


@pytest.mark.parametrize("count", [1, 2, 3, 17])
def test_max_tokens_ends_among_drafts(make: Make, count: int) -> None:
    driver = make()
    call = start(driver, "a", PROMPT, count)
    driver.run()
    assert len(call.ids) == count and call.finish == "length"
    stats = driver.engine.stats(SessionId("a"), 0.0)
    assert stats.num_computed == stats.num_tokens - 1, "the last id has no KV"


def test_a_stop_id_ends_where_it_would_have_ended(make: Make) -> None:
    (wanted,) = plain(make, [{}])
    ended = 0
    for stop in sorted(set(wanted)):
        driver = make()
        call = start(driver, "a", PROMPT, stop_ids=frozenset({stop}))
        driver.run()
        assert call.ids == wanted[: wanted.index(stop) + 1] and call.finish == "stop"
        stats = driver.engine.stats(SessionId("a"), 0.0)
        assert stats.num_computed == stats.num_tokens - 1
        ended += driver.engine.counters().num_accepted_tokens
    assert ended > 0


def test_an_output_may_end_a_request_among_its_drafts(make: Make) -> None:
    """The core does not count on drafts without stop ids: what follows the end is dropped, its KV too."""
    driver = make()
    call = start(driver, "a", [1, 2, 3, 4, 1, 2, 3], stop_ids=frozenset({TokenId(1)}))
    batch = driver.begin()
    assert batch is not None
    (piece,) = batch.slices
    assert piece.drafts == (4,), "the stop id is not drafted, nor what follows it"
    ids = (*piece.token_ids, TokenId(1), TokenId(2))
    table = driver.engine._sessions[SessionId("a")].table
    driver.engine._cache.prepare_write(table, len(ids))
    piece = msgspec.structs.replace(piece, token_ids=ids, num_drafts=3, block_table=tuple(table.blocks))
    longer = msgspec.structs.replace(batch, slices=(piece,))
    driver.engine._stepper._in_flight = longer
    deltas = driver.engine.commit(longer, Output((TokenId(9),), num_accepted={0: 3}), 0.0)
    assert [delta.tokens.ids for delta in deltas if delta.tokens is not None] == [(4,), (1,)]
    assert deltas[-1].done
    assert driver.engine.tokens(SessionId("a"))[-2:] == (4, 1)
    assert driver.engine.stats(SessionId("a"), 0.0).num_computed == 8
    driver.engine.check_invariants()
    assert not call.done  # the driver was not told


def grammar_places() -> list[frozenset[int]]:
    free, word = frozenset(range(2, 30)), [frozenset({5}), frozenset({6}), frozenset({7})]
    return [*word, *([free] * 6 + word) * 8, frozenset({1, 2})]


def test_a_grammar_is_walked_ahead(make: Make) -> None:
    outputs = []
    for mode in ("off", "suffix"):
        driver = make(speculation=mode)
        calls = []
        for n, sampling in enumerate((SamplingParams(), SamplingParams(temperature=1.0), SamplingParams())):
            driver.open(f"s{n}")
            driver.engine._sessions[SessionId(f"s{n}")].estimates = SURE
            params = GenerateParams(max_tokens=200, sampling=sampling, logprobs=n or None)
            calls.append(driver.generate(f"s{n}", PROMPT[n:], params, PatternGrammar(grammar_places(), VOCAB)))
        driver.run()
        assert {call.finish for call in calls} == {"grammar"}
        outputs.append([call.ids for call in calls])
    assert outputs[0] == outputs[1]
    counters = driver.engine.counters()
    assert counters.num_accepted_tokens > 10
    assert counters.num_decode_slices < counters.num_sampled_tokens


def test_what_is_forced_after_a_draft_is_drafted_with_it() -> None:
    a, b, c, d = (TokenId(n) for n in (10, 11, 12, 13))
    free = frozenset({10, 11, 12, 13, 14})
    grammar = PatternGrammar([free, frozenset({20}), frozenset({21}), free, free, frozenset({30}), free], VOCAB)
    walked = speculation._walk(grammar, [a, TokenId(20), TokenId(21), b, c], 8, ())
    assert walked.token_ids == (10, 20, 21, 11, 12, 30)
    assert [set(bits(mask)) for mask in walked.masks] == [{20}, {21}, set(free), set(free), {30}, set(free)]
    # The proposal knows nothing of 20 and 21: what it says after its first token is worth nothing.
    assert speculation._walk(grammar, [a, b, c, d], 8, ()).token_ids == (10, 20, 21)
    # Not all that is forced fits, or a stop id is forced, or the grammar refuses or ends: no draft from there.
    assert speculation._walk(grammar, [a, TokenId(20), TokenId(21), b, c], 5, ()).token_ids == (10, 20, 21, 11)
    assert speculation._walk(grammar, [a], 2, ()).token_ids == ()
    assert speculation._walk(grammar, [a], 8, {21}).token_ids == ()
    assert speculation._walk(grammar, [TokenId(40)], 8, ()).token_ids == ()
    assert speculation._walk(PatternGrammar([free], VOCAB), [a], 8, ()).token_ids == ()
    assert speculation._walk(PatternGrammar([free, frozenset()], VOCAB), [a], 8, ()).token_ids == ()
    assert grammar.mask().any() and not grammar.finished and grammar._at == 0, "the request's own state is as before"


def bits(mask: speculation.TokenMask) -> list[int]:
    return [token for token in range(VOCAB) if mask[token // 32] >> (token % 32) & 1]


# What drafts may take


def batches(driver: EngineDriver) -> list[Batch]:
    found = []
    while (batch := driver.begin()) is not None:
        found.append(batch)
        driver.end()
    return found


def test_drafts_take_what_the_budget_has_left(make: Make) -> None:
    driver = make(max_batch_tokens=16, max_chunk_tokens=12, max_running=4)
    start(driver, "long", range(40), 4)
    for n in range(3):
        start(driver, f"s{n}", [n] * 6)
    seen = batches(driver)
    assert all(batch.num_tokens <= 16 for batch in seen)
    assert all(len(piece.token_ids) <= 12 for batch in seen for piece in batch.slices)
    assert max(piece.num_drafts for batch in seen for piece in batch.slices) == 11
    full = [batch for batch in seen if len(batch.slices) == 4 and any(len(p.token_ids) > 8 for p in batch.slices)]
    assert full, "a prefill chunk had its share beside decodes"


def test_drafts_evict_and_preempt_nobody(make: Make) -> None:
    """A pool that holds the sequences and no block more: drafts have the rest of the last blocks, and nothing else."""
    for mode in ("off", "suffix"):
        driver = make(speculation=mode, num_blocks=12, max_model_tokens=48)
        driver.open("cached")
        driver.append("cached", range(16))
        driver.run()
        driver.close("cached")
        assert driver.engine.num_cached_blocks == 4
        start(driver, "a", [1, 2, 3, 4] * 4 + [1], 12)  # 28 slots, 7 blocks
        while driver.begin() is not None:
            assert driver.engine.num_cached_blocks >= 4
            driver.end()
        counters = driver.engine.counters()
        assert (counters.num_evictions, counters.num_preemptions, counters.num_discards) == (0, 0, 0)
    assert counters.num_drafted_tokens > 0


def test_blocks_of_wrong_drafts_are_free_again_at_once(make: Make) -> None:
    driver = make(block_size=1, num_blocks=100, max_model_tokens=99)
    start(driver, "a", PROMPT, 40)
    wrong = 0
    while (batch := driver.begin()) is not None:
        (piece,) = batch.slices
        driver.end()
        stats = driver.engine.stats(SessionId("a"), 0.0)
        assert stats.num_blocks_owned + stats.num_blocks_shared <= stats.num_tokens
        wrong += stats.num_computed < piece.end
        assert len(driver.engine.free_blocks()) + driver.engine.num_cached_blocks >= 100 - stats.num_tokens
    assert wrong > 0


def test_of_what_is_drafted_nothing_is_shared_before_it_is_right(make: Make) -> None:
    driver = make(block_size=1, num_blocks=200)
    start(driver, "a", PROMPT, 40)
    wrong = 0
    while (batch := driver.begin()) is not None:
        driver.end()
        num_computed = driver.engine.stats(SessionId("a"), 0.0).num_computed
        assert sum(driver.engine._cache._pool._published) == num_computed
        wrong += num_computed < batch.slices[0].end
    assert wrong > 0


@pytest.mark.parametrize("what", ["cancel", "close", "reload", "fail"])
def test_whatever_happens_while_drafts_are_computed(make: Make, what: str) -> None:
    driver = make(block_size=1, num_blocks=60, max_model_tokens=60)
    call = start(driver, "a", [1, 2, 3] * 5, 30)
    for _ in range(3):
        driver.step()
    batch = driver.begin()
    while batch is not None and not batch.slices[0].num_drafts:
        driver.end()
        batch = driver.begin()
    assert batch is not None
    match what:
        case "cancel":
            driver.cancel(call)
            driver.end()
        case "close":
            driver.close("a")
            driver.end()
        case "reload":
            driver.engine.start_epoch(driver.now)
            driver.end()
            driver.run()
        case _:
            driver.end(StepFailed("injected"))
    if what != "close":
        again = driver.generate("a", [4], GenerateParams(max_tokens=9))
        driver.run()
        assert again.done and again.error is None
        driver.close("a")
    assert driver.engine.num_owned_blocks == 0
    assert len(driver.engine.free_blocks()) + driver.engine.num_cached_blocks == 60


def test_an_output_that_accepts_what_was_not_drafted_is_refused(make: Make) -> None:
    for count in (-1, 99):
        driver = make()
        call = start(driver, "a", PROMPT)
        batch = driver.begin()
        assert batch is not None
        output = replace_accepted(driver.executor.execute(batch), count)
        driver.batch = None
        driver._settle(driver.engine.commit(batch, output, 0.0))
        assert call.error is not None and "are accepted" in str(call.error)


def replace_accepted(output: Output, count: int) -> Output:
    return msgspec.structs.replace(output, num_accepted={0: count})


# What is learned


def test_never_repeating_text_drafts_nothing(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = make(vocab_size=100_000, step_rows=12.0)
    call = start(driver, "a", range(1000, 1100), 60, sampling=SamplingParams(temperature=1.0))
    monkeypatch.setattr("tenuto.testing.fake_executor._repeated", lambda tokens: None)
    driver.run()
    assert len(call.ids) == 60
    assert driver.engine.counters().num_drafted_tokens == 0


def test_misses_end_drafts_until_guesses_are_right_again(make: Make) -> None:
    """Guesses are checked whether they were drafted or not."""
    driver = make(step_rows=20.0, vocab_size=3)
    driver.open("a")
    session = driver.engine._sessions[SessionId("a")]
    session.estimates = tuple(Estimate(0.01, 16) for _ in UNKNOWN)
    driver.generate("a", [0, 1, 2, 0, 1, 2], GenerateParams(max_tokens=40))
    first = driver.begin()
    assert first is not None and not first.slices[0].num_drafts
    driver.end()
    assert batches(driver) and session.estimates != tuple(Estimate(0.01, 16) for _ in UNKNOWN)
    assert driver.engine.counters().num_drafted_tokens > 0, "most of what this model says repeats"


def test_what_was_learned_stays_with_the_session_and_its_forks(make: Make) -> None:
    driver = make()
    start(driver, "a", PROMPT, 20)
    driver.run()
    learned = driver.engine._sessions[SessionId("a")].estimates
    assert learned != SURE
    driver.open("b", parent="a")
    assert driver.engine._sessions[SessionId("b")].estimates == learned
    driver.truncate("a", 10)
    assert driver.engine._sessions[SessionId("a")].estimates == learned


def test_the_number_of_indexed_sessions_is_bounded(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speculation, "MAX_INDEXES", 3)
    driver = make()
    names = [f"s{n}" for n in range(6)]
    for name in names:
        start(driver, name, PROMPT, 5)
        driver.run()
    sessions = [driver.engine._sessions[SessionId(name)] for name in names]
    assert [session.index is not None for session in sessions] == [False] * 3 + [True] * 3
    driver.generate("s0", [3], GenerateParams(max_tokens=5))
    driver.run()
    assert [session.index is not None for session in sessions] == [True, False, False, False, True, True]
    for name in names:
        driver.close(name)
    assert not driver.engine._speculator._indexed


def test_chosen_ids_that_the_grammar_overrules_end_the_chain(make: Make) -> None:
    driver = make()
    driver.open("a")
    grammar = PatternGrammar([frozenset({8, 9}), frozenset({20}), frozenset({8, 9})], VOCAB)
    driver.generate("a", [1], GenerateParams(max_tokens=3), grammar)
    request = next(iter(driver.engine._stepper.requests.values()))
    choice = generation.take_choice(request, [TokenId(9), TokenId(21), TokenId(9)], lambda _, __: None)
    assert [emission.ids for emission in choice.emissions] == [(9, 20)]
    assert (choice.num_kept, choice.num_accepted) == (1, 0), "only the KV of 9 stands"


def test_config_is_checked() -> None:
    config = EngineConfig(num_blocks=4, vocab_size=9, max_model_tokens=64)
    for change in ({"speculation": "on"}, {"max_draft_tokens": 0}, {"step_rows": 0.0}):
        with pytest.raises(Exception, match=next(iter(change))):
            replace(config, **change)  # type: ignore[arg-type]
