"""Sessions and requests on an idle engine. The driver compares every id with the naive model."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tenuto.engine import Output
from tenuto.engine.engine import Engine
from tenuto.errors import (
    Cancelled,
    ContextLengthError,
    InvalidRequest,
    NeverFits,
    QueueFull,
    SessionBusy,
    SessionExists,
    SessionNotFound,
    StepFailed,
)
from tenuto.ids import RunId, SessionId, TokenId
from tenuto.protocol.engine import GenerateParams, SamplingParams
from tenuto.protocol.hints import ExpectedWait, RunHints
from tenuto.testing.engine_driver import EngineDriver

Make = Callable[..., EngineDriver]
TEN = GenerateParams(max_tokens=10)


def test_a_later_turn_computes_the_appended_ids_and_the_sampled_one(make_driver: Make) -> None:
    driver = make_driver(prefix_cache=False)
    driver.open("a")
    first = driver.generate("a", range(20), TEN)
    driver.run()
    assert first.usage is not None and first.usage.num_computed == 20
    for turn in range(1, 9):
        before = driver.engine.counters().num_computed_tokens
        call = driver.generate("a", range(turn), GenerateParams(max_tokens=5))
        driver.run()
        assert call.usage is not None
        assert call.usage.num_computed == turn + 1
        assert call.usage.num_held == call.usage.num_prompt - turn - 1
        # The model also computed four of the five new ids.
        assert driver.engine.counters().num_computed_tokens - before == turn + 1 + 4


def test_held_equals_cold(make_driver: Make) -> None:
    held = make_driver()
    held.open("a")
    for turn in range(5):
        held.generate("a", [turn] * 7, TEN)
        held.run()
        cold = make_driver()
        cold.open("b")
        call = cold.generate("b", held.tokens[SessionId("a")][:-10], TEN)
        cold.run()
        assert call.ids == held.tokens[SessionId("a")][-10:]


def test_append_computes_without_generating(make_driver: Make) -> None:
    driver = make_driver()
    driver.open("a")
    call = driver.append("a", range(10))
    assert not call.done
    driver.run()
    assert call.done and call.ids == [] and call.finish is None
    stats = driver.engine.stats(SessionId("a"), driver.now)
    assert (stats.num_tokens, stats.num_computed, stats.total_computed_tokens) == (10, 10, 10)
    nothing = driver.append("a", [])
    assert nothing.done and nothing.usage is not None and nothing.usage.num_steps == 0
    # All tokens have KV: the last one is computed again for its logits (B21).
    call = driver.generate("a", [], TEN)
    driver.run()
    assert call.usage is not None and call.usage.num_computed == 1


@pytest.mark.parametrize("length", [31, 32, 33, 16, 17])
@pytest.mark.parametrize("prefix_cache", [True, False])
def test_a_prompt_that_is_wholly_cached(make_driver: Make, length: int, prefix_cache: bool) -> None:
    """B21, with blocks of 16."""
    driver = make_driver(block_size=16, prefix_cache=prefix_cache)
    for name in ("a", "b"):
        driver.open(name)
        call = driver.generate(name, [i % 50 for i in range(length)], TEN)
        driver.run()
    assert call.usage is not None
    assert call.usage.num_shared == ((length - 1) // 16 * 16 if prefix_cache else 0)
    driver.truncate("b", length)  # KV covers exactly the tokens that are kept
    driver.generate("b", [], TEN)
    driver.run()


def test_stop_ids_end_and_stay(make_driver: Make) -> None:
    driver = make_driver()
    driver.open("a")
    probe = driver.generate("a", [1, 2, 3], TEN)
    driver.run()
    driver.open("b")
    stop = probe.ids[4]
    call = driver.generate("b", [1, 2, 3], GenerateParams(max_tokens=10, stop_ids=frozenset({stop})))
    driver.run()
    assert call.finish == "stop"
    assert call.ids == probe.ids[: probe.ids.index(stop) + 1]
    assert driver.engine.tokens(SessionId("b"))[-1] == stop


def test_without_max_tokens_the_context_is_the_limit(make_driver: Make) -> None:
    driver = make_driver(max_model_tokens=40)
    driver.open("a")
    call = driver.generate("a", range(10), GenerateParams())
    driver.run()
    assert call.finish == "length" and len(call.ids) == 30
    small = make_driver(num_blocks=5)
    small.open("a")
    call = small.generate("a", range(10), GenerateParams())
    small.run()
    assert len(call.ids) == 11, "20 slots hold all but the last id"


def test_seeds(make_driver: Make) -> None:
    driver = make_driver()
    outputs = []
    for name, seed in (("a", 1), ("b", 2), ("c", 1)):
        driver.open(name)
        sampling = SamplingParams(temperature=1.0, seed=seed)
        outputs.append(driver.generate(name, [5, 6], GenerateParams(max_tokens=8, sampling=sampling)))
    driver.run()
    assert outputs[0].ids == outputs[2].ids != outputs[1].ids


def test_forks_diverge_and_share(make_driver: Make) -> None:
    driver = make_driver()
    driver.open("a")
    driver.append("a", range(22))
    driver.run()
    for name in ("b", "c", "d"):
        driver.open(name, parent="a")
    assert driver.engine.num_owned_blocks == 6
    assert driver.engine.stats(SessionId("b"), 0.0).num_blocks_shared == 6
    for name in ("a", "b", "c"):
        driver.generate(name, [ord(name) % 50], TEN)
    driver.run()
    assert driver.engine.counters().num_copies >= 2
    driver.close("a")
    call = driver.generate("d", [7], TEN)
    driver.run()
    assert call.usage is not None and call.usage.num_held == 22
    assert driver.engine.stats(SessionId("d"), 0.0).num_blocks_owned > 0


def test_truncate_inside_a_block_then_continue(make_driver: Make) -> None:
    for prefix_cache in (True, False):
        driver = make_driver(prefix_cache=prefix_cache)
        driver.open("a")
        driver.open("b", hints=RunHints(tenant=""))
        for keep in (30, 21, 13, 12, 11, 1, 0):
            driver.generate("a", [keep] * 9, GenerateParams(max_tokens=25))
            driver.run()
            driver.truncate("a", keep)
            assert driver.engine.stats(SessionId("a"), 0.0).num_computed == keep


def test_refusals_change_nothing(make_driver: Make) -> None:
    driver = make_driver(max_waiting=1, num_blocks=8)
    driver.open("a")
    with pytest.raises(SessionExists):
        driver.open("a")
    with pytest.raises(SessionNotFound):
        driver.generate("zz", [1], TEN)
    with pytest.raises(SessionNotFound):
        driver.open("b", parent="zz")
    with pytest.raises(NeverFits):
        driver.generate("a", [1] * 30, TEN)
    with pytest.raises(ContextLengthError):
        driver.append("a", [1] * 500)
    with pytest.raises(InvalidRequest):
        driver.generate("a", [50], TEN)
    with pytest.raises(InvalidRequest):
        driver.generate("a", [], TEN)
    with pytest.raises(InvalidRequest):
        driver.truncate("a", 1)
    assert driver.engine.tokens(SessionId("a")) == ()
    driver.generate("a", [1], TEN)
    driver.open("b")
    with pytest.raises(QueueFull):
        driver.generate("b", [1], TEN)
    for busy in (
        lambda: driver.generate("a", [1], TEN),
        lambda: driver.append("a", [1]),
        lambda: driver.truncate("a", 0),
        lambda: driver.open("c", parent="a"),
        lambda: driver.engine.suspend(SessionId("a"), ExpectedWait(), 0.0),
    ):
        with pytest.raises(SessionBusy):
            busy()
    driver.run()


def test_tenants_share_no_prefix(make_driver: Make) -> None:
    driver = make_driver()
    shared = []
    for name, tenant in (("a", "x"), ("b", "y"), ("c", "x")):
        driver.open(name, hints=RunHints(tenant=tenant))
        call = driver.generate(name, range(20), TEN)
        driver.run()
        assert call.usage is not None
        shared.append(call.usage.num_shared)
    assert shared == [0, 0, 16]
    with pytest.raises(InvalidRequest, match="tenant"):
        driver.open("d", parent="a", hints=RunHints(tenant="y"))


def test_new_weights_void_all_kv(make_driver: Make) -> None:
    """B20: held sessions, cached prefixes and a running request."""
    driver = make_driver()
    for name in ("held", "gone", "running"):
        driver.open(name)
    driver.generate("held", range(20), TEN)
    driver.generate("gone", range(30), TEN)
    driver.run()
    driver.close("gone")
    running = driver.generate("running", range(10, 40), TEN)
    driver.begin()
    driver.engine.start_epoch(driver.now)
    assert driver.engine.num_cached_blocks == driver.engine.num_owned_blocks == 0
    driver.end()
    driver.run()
    assert running.done and len(running.ids) == 10
    driver.open("fresh")
    fresh = driver.generate("fresh", range(30), TEN)
    held = driver.generate("held", [3], TEN)
    driver.run()
    assert fresh.usage is not None and held.usage is not None
    assert (fresh.usage.num_shared, held.usage.num_held) == (0, 0)


@pytest.mark.parametrize("num_steps", [0, 1, 2, 4, 9])
@pytest.mark.parametrize("in_flight", [False, True])
def test_cancel_at_any_phase_returns_to_baseline(make_driver: Make, num_steps: int, in_flight: bool) -> None:
    """B31: queued, mid-prefill, first token, later; 200 times over."""
    driver = make_driver(max_chunk_tokens=8, max_running=2, max_batch_tokens=16)
    for name in ("a", "b", "c"):
        driver.open(name)
    total = len(driver.engine.free_blocks())
    for _ in range(200 // (num_steps + 1)):
        calls = [driver.generate(name, [ord(name) % 50] * 30, TEN) for name in ("a", "b", "c")]
        for _ in range(num_steps):
            driver.step()
        if in_flight:
            driver.begin()
        driver.cancel(calls[0])
        driver.close("b")
        driver.cancel(calls[2])
        if in_flight:
            driver.end()
        assert isinstance(calls[1].error, Cancelled)
        assert not driver.engine.has_work
        for name in ("a", "c"):
            driver.tokens[SessionId(name)] = list(driver.engine.tokens(SessionId(name)))
            driver.truncate(name, 0)
        driver.open("b")
        assert driver.engine.num_owned_blocks == 0
        assert len(driver.engine.free_blocks()) + driver.engine.num_cached_blocks == total
    driver.generate("a", [1, 2], TEN)
    driver.run()


def test_calls_while_a_step_is_in_flight(make_driver: Make) -> None:
    driver = make_driver()
    for name in ("a", "b", "c"):
        driver.open(name)
        driver.generate(name, [ord(name) % 50] * 10, TEN)
    driver.step()
    driver.begin()
    a, b, c = driver.live
    driver.cancel(a)
    driver.open("d", parent="a")
    driver.truncate("a", 5)
    again = driver.generate("a", [9] * 4, TEN)
    driver.close("b")
    driver.open("b")
    new = driver.generate("b", [8] * 12, TEN)
    driver.end()
    driver.run()
    assert b.error is not None
    assert len(c.ids) == len(again.ids) == len(new.ids) == 10
    driver.generate("d", [1], TEN)
    driver.run()


def test_a_failed_step_ends_its_requests_and_the_engine_lives_on(make_driver: Make) -> None:
    driver = make_driver(max_running=2)
    for name in ("a", "b", "c"):
        driver.open(name)
    calls = [driver.generate(name, [ord(name) % 50] * 10, TEN) for name in ("a", "b", "c")]
    driver.step()
    driver.begin()
    driver.end(StepFailed("out of memory"))
    assert [isinstance(c.error, StepFailed) for c in calls] == [True, True, False]
    assert driver.engine.num_owned_blocks == 0
    driver.run()
    assert len(calls[2].ids) == 10
    driver.generate("a", [1], TEN)  # its tokens are still there, and are computed again
    driver.run()
    assert driver.engine.counters().num_failed_steps == 1


def test_a_fork_of_a_copy_that_was_never_made_is_computed_again(make_driver: Make) -> None:
    driver = make_driver()
    driver.open("a")
    driver.append("a", range(6))
    driver.run()
    driver.open("b", parent="a")
    call = driver.generate("b", [1], TEN)
    batch = driver.begin()
    assert batch is not None and batch.copies
    driver.cancel(call)
    driver.open("c", parent="b")
    driver.end(StepFailed("lost"))
    for name in ("a", "b", "c"):
        driver.generate(name, [2], TEN)
    driver.run()


@pytest.mark.parametrize("ids", [(), (None,), (TokenId(50),), (TokenId(1), TokenId(2))])
def test_unusable_output_fails_the_step(make_driver: Make, ids: tuple[TokenId | None, ...]) -> None:
    driver = make_driver()
    driver.open("a")
    request = driver.engine.generate(SessionId("a"), [TokenId(1)], TEN, 0.0)
    batch = driver.engine.schedule(0.0)
    assert batch is not None
    (delta,) = driver.engine.commit(batch, Output(ids), 0.0)
    assert delta.request == request and delta.done and isinstance(delta.error, StepFailed)
    driver.engine.check_invariants()


def test_stats_and_phases(make_driver: Make) -> None:
    driver = make_driver(kv_bytes_per_token=8, max_running=1)
    driver.open("a", hints=RunHints(run=RunId("r")))
    driver.open("b")
    driver.generate("a", range(10), TEN)
    second = driver.generate("b", range(20, 30), TEN)
    driver.run()
    assert second.usage is not None and second.usage.queued_s > 0
    stats = driver.engine.stats(SessionId("b"), driver.now)
    assert stats.waiting_s == pytest.approx(second.usage.queued_s)
    assert stats.running_s == pytest.approx(second.usage.total_s - second.usage.queued_s)
    assert stats.kv_bytes == 5 * 4 * 8
    assert stats.num_blocks_owned == 5 and stats.num_blocks_shared == 0
    driver.engine.suspend(SessionId("b"), ExpectedWait(seconds=3.0), driver.now)
    assert driver.engine.stats(SessionId("b"), driver.now + 2).suspended_s == pytest.approx(2)
    driver.now += 5
    driver.generate("b", [1], GenerateParams(max_tokens=1))
    assert driver.engine.stats(SessionId("b"), driver.now).suspended_s == pytest.approx(5)
    driver.run()


def computed_again(engine: Engine, num_tokens: int) -> int:
    """Where the first step of a new session with tokens 0, 1, 2 ... begins: behind what it shares."""
    engine.open(SessionId("again"), 0.0)
    request = engine.generate(SessionId("again"), [TokenId(t) for t in range(num_tokens)], TEN, 0.0)
    batch = engine.schedule(0.0)
    assert batch is not None
    return next(piece.start for piece in batch.slices if piece.request == request)


def test_a_request_without_finite_logits_fails_alone_and_leaves_no_kv(make_driver: Make) -> None:
    engine = make_driver(block_size=4).engine
    for name in ("a", "b"):
        engine.open(SessionId(name), 0.0)
    bad = engine.generate(SessionId("a"), [TokenId(t) for t in range(10)], TEN, 0.0)
    good = engine.generate(SessionId("b"), [TokenId(t) for t in range(20, 30)], TEN, 0.0)
    batch = engine.schedule(0.0)
    assert batch is not None
    ids = tuple(None if piece.request == bad else TokenId(1) for piece in batch.slices)
    index = [piece.request for piece in batch.slices].index(bad)
    deltas = {d.request: d for d in engine.commit(batch, Output(ids, frozenset({index})), 0.0)}
    assert isinstance(deltas[bad].error, StepFailed) and deltas[bad].done
    assert deltas[good].tokens is not None and deltas[good].tokens.ids == (1,)
    engine.check_invariants()
    assert computed_again(engine, 10) == 0


def test_broken_kv_of_an_earlier_step_is_withdrawn_too(make_driver: Make) -> None:
    engine = make_driver(block_size=4, max_running=4, max_batch_tokens=8, max_chunk_tokens=8).engine
    engine.open(SessionId("a"), 0.0)
    bad = engine.generate(SessionId("a"), [TokenId(t) for t in range(12)], TEN, 0.0)
    first = engine.schedule(0.0)
    assert first is not None and not first.slices[0].samples
    engine.commit(first, Output((None,)), 0.0)  # eight tokens are published now
    second = engine.schedule(0.0)
    assert second is not None
    (delta,) = engine.commit(second, Output((None,), frozenset({0})), 0.0)
    assert delta.request == bad and isinstance(delta.error, StepFailed)
    engine.check_invariants()
    assert computed_again(engine, 12) == 0
