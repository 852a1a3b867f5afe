"""What the engine counts for metrics: sizes of steps, reasons, and how things stand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tenuto.engine.counts import SizeCounts
from tenuto.ids import SessionId
from tenuto.protocol.counters import NUM_STEP_SIZES
from tenuto.protocol.engine import GenerateParams
from tenuto.protocol.hints import ExpectedWait
from tenuto.testing.engine_driver import EngineDriver

Make = Callable[..., EngineDriver]


@pytest.mark.parametrize(("size", "index"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (4096, 12), (4097, 13)])
def test_sizes_are_counted_by_powers_of_two(size: int, index: int) -> None:
    sizes = SizeCounts()
    sizes.add(size)
    sizes.add(1)
    value = sizes.value()
    assert value.total == size + 1
    assert len(value.counts) == NUM_STEP_SIZES and sum(value.counts) == 2
    assert value.counts[index] == (2 if index == 0 else 1)


def test_every_step_is_counted_once_by_requests_and_by_tokens(make_driver: Make) -> None:
    driver = make_driver()
    for name in ("a", "b", "c"):
        driver.open(name)
        driver.generate(name, [ord(name) % 50] * 9, GenerateParams(max_tokens=3))
    driver.run()
    counters = driver.engine.counters()
    assert sum(counters.step_requests.counts) == sum(counters.step_tokens.counts) == counters.num_steps == 3
    assert counters.step_requests.total == 9
    assert counters.step_tokens.total == counters.num_computed_tokens == 3 * (9 + 2)


def test_levels_add_up_to_the_pool(make_driver: Make) -> None:
    driver = make_driver(num_blocks=32)
    driver.open("a")
    driver.append("a", range(22))
    driver.run()
    driver.open("b", parent="a")
    driver.open("gone")
    driver.append("gone", [7] * 8)
    driver.run()
    driver.close("gone")
    driver.engine.suspend(SessionId("b"), ExpectedWait(seconds=1.0), driver.now)
    levels = driver.engine.levels()
    assert (levels.num_sessions, levels.num_suspended, levels.num_suspended_tokens) == (2, 1, 22)
    assert (levels.num_blocks_shared, levels.num_blocks_owned, levels.num_blocks_cached) == (6, 0, 2)
    assert levels.num_blocks_free == 32 - 8
    driver.generate("a", [1], GenerateParams(max_tokens=9))
    driver.generate("b", [2], GenerateParams(max_tokens=9))
    assert driver.engine.levels().num_waiting == 2 and driver.engine.levels().num_suspended == 0
    driver.run()
    levels = driver.engine.levels()
    assert (levels.num_waiting, levels.num_running) == (0, 0)
    assert levels.num_blocks_shared == 5, "the last, partial block was copied on write"
    held = levels.num_blocks_owned + levels.num_blocks_shared
    assert levels.num_blocks_free + levels.num_blocks_cached + held == levels.num_blocks == 32


def test_preemptions_and_discards_have_their_reason(make_driver: Make) -> None:
    driver = make_driver(num_blocks=16, policy="fcfs", prefix_cache=False)
    for name, token in (("a", 1), ("b", 2)):
        driver.open(name)
        driver.generate(name, [token] * 24, GenerateParams(max_tokens=30))
    driver.run()
    counters = driver.engine.counters()
    assert counters.num_preemptions > 0
    assert counters.num_preempted_for_others + counters.num_discarded_idle > 0
    assert counters.num_preempted_for_others <= counters.num_preemptions
    assert counters.num_discarded_idle <= counters.num_discards
