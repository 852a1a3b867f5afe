"""Sharing among running requests, pressure, fairness: the scheduler seen through the engine."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tenuto.errors import StepFailed
from tenuto.ids import RunId, SessionId
from tenuto.protocol.engine import GenerateParams
from tenuto.protocol.hints import ExpectedWait, RunHints
from tenuto.testing.engine_driver import Call, EngineDriver

Make = Callable[..., EngineDriver]
TEN = GenerateParams(max_tokens=10)
SYSTEM = [i % 50 for i in range(40)]  # ten blocks


def test_agents_with_one_system_prompt_compute_it_once(make_driver: Make) -> None:
    driver = make_driver(num_blocks=200)
    calls = []
    for agent in range(8):
        driver.open(f"agent{agent}")
        calls.append(driver.generate(f"agent{agent}", [*SYSTEM, agent], TEN))
    driver.run()
    usages = [c.usage for c in calls if c.usage is not None]
    assert [u.num_computed for u in usages] == [41, 1, 1, 1, 1, 1, 1, 1]
    assert [u.num_shared for u in usages] == [0, 40, 40, 40, 40, 40, 40, 40]


def test_a_follower_goes_on_when_its_leader_ends(make_driver: Make) -> None:
    """Whatever happens to the leader, a follower waits at most for the end of its prefill."""
    for end in ("cancel", "close", "fail"):
        driver = make_driver(max_chunk_tokens=4, max_batch_tokens=16)
        for name in ("leader", "follower"):
            driver.open(name)
        leader = driver.generate("leader", SYSTEM, TEN)
        follower = driver.generate("follower", [*SYSTEM, 1], TEN)
        driver.step()
        assert driver.engine.num_running == 1, "the follower waits for what the leader is about to publish"
        if end == "cancel":
            driver.cancel(leader)
        elif end == "close":
            driver.close("leader")
        else:
            driver.begin()
            driver.end(StepFailed("lost"))
        driver.run()
        assert len(follower.ids) == 10


def test_nobody_waits_for_tokens_that_differ(make_driver: Make) -> None:
    driver = make_driver(max_chunk_tokens=4, max_batch_tokens=16)
    for name, first in (("a", 1), ("b", 2)):
        driver.open(name)
        driver.generate(name, [first, *SYSTEM], TEN)
    driver.step()
    assert driver.engine.num_running == 2
    driver.run()


def test_prefill_and_decode_share_one_batch(make_driver: Make) -> None:
    driver = make_driver()
    for name in ("a", "b"):
        driver.open(name)
    driver.generate("a", range(9), TEN)
    driver.step()
    driver.generate("b", range(20, 40), TEN)
    batch = driver.begin()
    assert batch is not None
    assert sorted(len(s.token_ids) for s in batch.slices) == [1, 20]
    assert all(s.samples for s in batch.slices)
    driver.end()
    driver.run()


def test_budget_and_chunk_caps_hold_and_all_running_advance(make_driver: Make) -> None:
    driver = make_driver(max_batch_tokens=10, max_chunk_tokens=6, max_running=4, num_blocks=200)
    for index in range(6):
        driver.open(f"s{index}")
        driver.generate(f"s{index}", [index] * (5 + 9 * index), TEN)
    while (batch := driver.begin()) is not None:
        assert batch.num_tokens <= 10
        assert all(len(s.token_ids) <= 6 for s in batch.slices)
        assert len(batch.slices) == driver.engine.num_running <= 4
        driver.end()
    driver.run()


@pytest.mark.parametrize("policy", ["fcfs", "agent"])
def test_same_output_with_and_without_cache_and_pressure(make_driver: Make, policy: str) -> None:
    """B22: a pool for about one and a half requests; block 8, two requests of 20 tokens and 25 new ones."""
    outputs = set()
    for prefix_cache in (True, False):
        for num_blocks in (9, 64):
            driver = make_driver(num_blocks=num_blocks, block_size=8, prefix_cache=prefix_cache, policy=policy)
            calls = []
            for name in ("a", "b"):
                driver.open(name)
                calls.append(driver.generate(name, [ord(name) % 50] * 20, GenerateParams(max_tokens=25)))
            driver.run()
            preempted = driver.engine.counters().num_preemptions
            assert (preempted > 0) == (num_blocks == 9)
            assert all(c.usage is not None and c.usage.num_computed == 20 for c in calls)
            recomputed = [c.usage.num_recomputed for c in calls if c.usage is not None]
            assert sum(recomputed) == driver.engine.counters().num_recomputed_tokens
            if not prefix_cache:
                assert (sum(recomputed) > 0) == (num_blocks == 9)
            outputs.add(tuple(tuple(c.ids) for c in calls))
    assert len(outputs) == 1


@pytest.mark.parametrize("policy", ["fcfs", "agent"])
@pytest.mark.parametrize("num_long", [2, 4])
def test_preemption_does_not_thrash(make_driver: Make, policy: str, num_long: int) -> None:
    """B29: long decodes fill the pool, and a preempted request of 600 tokens wants back in."""
    driver = make_driver(
        num_blocks=256,
        max_model_tokens=1024,
        max_chunk_tokens=256,
        max_batch_tokens=512,
        policy=policy,
        prefix_cache=False,
    )
    calls = []
    for index, length in enumerate([600, *[30] * num_long]):
        driver.open(f"s{index}")
        calls.append(driver.generate(f"s{index}", [index] * length, GenerateParams(max_tokens=300)))
    steps = driver.run(5000)
    counters = driver.engine.counters()
    assert all(len(c.ids) == 300 for c in calls)
    assert 1 <= counters.num_preemptions <= 6
    assert counters.num_recomputed_tokens < 3 * counters.num_sampled_tokens
    assert steps < 300 * (num_long + 2)


def test_the_first_come_is_never_preempted_under_fcfs(make_driver: Make) -> None:
    driver = make_driver(num_blocks=12, policy="fcfs", prefix_cache=False)
    calls = []
    for index in range(4):
        driver.open(f"s{index}")
        calls.append(driver.generate(f"s{index}", [index] * 8, GenerateParams(max_tokens=30)))
    driver.run()
    usages = [c.usage for c in calls if c.usage is not None]
    assert usages[0].num_recomputed == 0
    assert sum(u.num_recomputed for u in usages) > 0
    totals = [u.total_s for u in usages]
    assert totals == sorted(totals), "the preempted keep their order of arrival"


def test_pressure_takes_cached_blocks_then_idle_sessions_then_running_ones(make_driver: Make) -> None:
    driver = make_driver(num_blocks=16, policy="fcfs")
    for name in ("idle", "gone", "busy"):
        driver.open(name)
    driver.generate("idle", [1] * 12, GenerateParams(max_tokens=1))
    driver.generate("gone", [2] * 12, GenerateParams(max_tokens=1))
    driver.run()
    driver.close("gone")
    driver.generate("busy", [3] * 40, GenerateParams(max_tokens=1))
    driver.run()
    counters = driver.engine.counters()
    assert (counters.num_evictions, counters.num_discards) == (0, 0)
    driver.generate("busy", [4] * 6, GenerateParams(max_tokens=1))
    driver.run()
    counters = driver.engine.counters()
    assert counters.num_evictions > 0 and counters.num_discards == 0
    driver.generate("busy", [4] * 12, GenerateParams(max_tokens=1))
    driver.run()
    counters = driver.engine.counters()
    assert (counters.num_discards, counters.num_discarded_idle, counters.num_preemptions) == (1, 1, 0)
    assert driver.engine.stats(SessionId("idle"), 0.0).num_computed == 0
    driver.generate("idle", [5], TEN)
    driver.run()


def test_the_session_that_waits_longest_is_discarded_first(make_driver: Make) -> None:
    driver = make_driver(num_blocks=16, policy="agent", prefix_cache=False)
    for name, wait in (("short", 1.0), ("long", 60.0)):
        driver.open(name)
        driver.generate(name, [ord(name[0]) % 50] * 16, GenerateParams(max_tokens=1))
        driver.run()
        driver.engine.suspend(SessionId(name), ExpectedWait(seconds=wait), driver.now)
    driver.open("busy")
    driver.generate("busy", [1] * 36, GenerateParams(max_tokens=1))
    driver.run()
    assert driver.engine.stats(SessionId("long"), 0.0).num_computed == 0
    assert driver.engine.stats(SessionId("short"), 0.0).num_computed == 16


def test_a_huge_prefill_does_not_block_short_turns(make_driver: Make) -> None:
    """B30, first part: an 8k prompt, then ten tool results of 30 tokens."""
    driver = make_driver(
        num_blocks=4000, max_model_tokens=9000, max_batch_tokens=512, max_chunk_tokens=256, policy="agent"
    )
    for index in range(10):
        driver.open(f"agent{index}", hints=RunHints(run=RunId(f"run{index}")))
        driver.generate(f"agent{index}", [index] * 100, GenerateParams(max_tokens=2))
    driver.run()
    driver.open("huge")
    huge = driver.generate("huge", [i % 49 for i in range(8000)], GenerateParams(max_tokens=1))
    driver.step()
    start = driver.executor.num_steps
    turns = [driver.generate(f"agent{i}", [i] * 30, GenerateParams(max_tokens=2)) for i in range(10)]
    driver.run()
    assert all(c.first_step is not None and c.first_step - start <= 2 for c in turns)
    assert huge.first_step is not None and huge.first_step - start >= 30


def test_ageing_bounds_the_wait_behind_endless_short_turns(make_driver: Make) -> None:
    """B30, second part: one 4k prompt among short turns without end."""
    driver = make_driver(
        num_blocks=1100,
        max_model_tokens=4200,
        max_batch_tokens=64,
        max_chunk_tokens=64,
        max_running=2,
        policy="agent",
        patience_s=1.0,
    )
    short: dict[str, Call] = {}
    for index in range(6):
        driver.open(f"short{index}")
    driver.open("long")
    started: Call | None = None
    for _ in range(600):
        for index in range(6):
            name = f"short{index}"
            if name not in short or short[name].done:
                if len(driver.tokens[SessionId(name)]) > 100:
                    driver.truncate(name, 0)
                short[name] = driver.generate(name, [index] * 20, GenerateParams(max_tokens=3))
        if started is None:
            started = driver.generate("long", [i % 47 for i in range(4000)], GenerateParams(max_tokens=1))
        driver.step()
        if started.done:
            break
    assert started is not None and started.done and started.usage is not None
    assert started.usage.queued_s < 2.0, "after one patience it is ahead of all that came later"


def test_one_that_does_not_fit_yet_is_passed_only_so_often(make_driver: Make) -> None:
    driver = make_driver(num_blocks=20, policy="fcfs", max_bypasses=3, max_running=8, prefix_cache=False)
    driver.open("first")
    driver.generate("first", [1] * 30, GenerateParams(max_tokens=25))
    driver.step()
    driver.open("big")
    big = driver.generate("big", [2] * 60, GenerateParams(max_tokens=1))
    small = []
    for index in range(8):
        driver.open(f"small{index}")
        small.append(driver.generate(f"small{index}", [3] * 3, GenerateParams(max_tokens=2)))
    driver.run()
    assert big.usage is not None
    queued = [c.usage.queued_s for c in small if c.usage is not None]
    assert sum(1 for q in queued if q < big.usage.queued_s) == 3


def test_priority_goes_first(make_driver: Make) -> None:
    driver = make_driver(max_running=1, policy="agent")
    calls = []
    for name, priority in (("a", 0), ("b", 0), ("c", 5)):
        driver.open(name)
        params = GenerateParams(max_tokens=3, hints=RunHints(priority=priority))
        calls.append(driver.generate(name, [1, 2, ord(name) % 50], params))
    driver.run()
    a, b, c = (call.first_step for call in calls)
    assert a is not None and b is not None and c is not None
    assert c < a < b
