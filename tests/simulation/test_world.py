"""Whole worlds: safety under faults, then everybody is served; and any seed replays to the letter."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest

from tenuto.engine import Engine, EngineConfig
from tenuto.testing import Violation, World, WorldConfig
from tenuto.testing.world import main
from tenuto.testing.world_config import VOCAB_SIZE, draw_config

MUST_HAPPEN = (
    "agent run left",
    "agent: answer",
    "agent: error step_failed",
    "agent: max_turns",
    "cancel: agent run",
    "cancel: before the first step",
    "cancel: decode",
    "cancel: prefill",
    "cancel: queued",
    "cancel: step in flight",
    "cancel: tool wait",
    "choices",
    "ended: appended",
    "ended: cancelled",
    "ended: grammar",
    "ended: grammar_error",
    "ended: length",
    "ended: step_failed",
    "ended: stop",
    "engine: accepted_tokens",
    "engine: copies",
    "engine: discards",
    "engine: drafted_tokens",
    "engine: evictions",
    "engine: forced_tokens",
    "engine: preemptions",
    "engine: shared_tokens",
    "left",
    "refused: context_length_error",
    "refused: invalid_request",
    "refused: never_fits",
    "refused: queue_full",
    "refused: session_busy",
    "refused: session_exists",
    "refused: session_not_found",
    "reload",
    "shutdown",
    "step fault: after",
    "step fault: before",
    "step fault: halfway",
    "step fault: missing",
    "step fault: out of range",
)


@pytest.mark.parametrize("first_seed", [0, 6])
def test_ten_thousand_steps_of_everything(first_seed: int) -> None:
    counts: Counter[str] = Counter()
    num_steps = 0
    for seed in range(first_seed, first_seed + 4):
        summary = World(seed).run(2500)
        counts += summary.counts
        num_steps += summary.num_steps
    assert num_steps >= 10_000
    assert not [name for name in MUST_HAPPEN if not counts[name]], "a fault that never happens tests nothing"


@pytest.mark.soak
@pytest.mark.parametrize("part", range(20))
def test_two_million_steps(part: int) -> None:
    for seed in range(10_000 + 40 * part, 10_000 + 40 * (part + 1)):
        World(seed).run(2500)


def test_everything_through_a_boundary() -> None:
    summary = World(0, apart=True).run(1000)
    assert summary.counts["left"] and summary.counts["engine: preemptions"]
    assert World(7, apart=True).run(300) == World(7, apart=True).run(300)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
def test_half_a_million_steps_through_a_boundary(part: int) -> None:
    for seed in range(20_000 + 20 * part, 20_000 + 20 * (part + 1)):
        World(seed, apart=True).run(2500)


# Replay


def test_a_seed_replays_to_the_letter() -> None:
    first, second, other = World(3).run(1200), World(3).run(1200), World(4).run(1200)
    assert first == second
    assert first.digest != other.digest
    assert first.num_events > 1000


def test_a_seed_replays_in_another_process() -> None:
    expected = World(5).run(900).digest
    command = [sys.executable, "-m", "tenuto.testing.world", "--seed", "5", "--steps", "900"]
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    assert f"digest {expected}" in done.stdout


def test_a_violation_says_how_to_replay_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(Engine, "start_epoch", lambda self, now: None)
    found = None
    for seed in range(12):
        try:
            World(seed).run(1600)
        except Violation as violation:
            found = str(violation)
            break
    assert found is not None
    command = re.search(r"python -m tenuto\.testing\.world (.*)", found)
    assert command is not None
    assert main(command[1].split()) == 1
    printed = capsys.readouterr()
    assert found in printed.err
    events = re.search(r"after (\d+) events", found)
    assert events is not None
    assert len(printed.out.splitlines()) == int(events[1]), "--trace prints every event"


def test_one_seed_more_is_another_engine() -> None:
    drawn = {repr(draw_config(random.Random(seed))) for seed in range(50)}
    assert len(drawn) == 50


# Cases of public fault reports, as whole worlds. The naive model checks every id, the ledger every count.

BUSY = WorldConfig(
    engine=EngineConfig(
        num_blocks=40,
        block_size=4,
        vocab_size=VOCAB_SIZE,
        max_model_tokens=128,
        max_batch_tokens=32,
        max_chunk_tokens=16,
        max_running=6,
        max_waiting=64,
    ),
    num_session_actors=4,
    num_agents=2,
    max_sessions=2,
    pause_s=0.01,
)


def test_b20_new_weights_void_all_kv() -> None:
    summary = World(20, replace(BUSY, reload=0.2, interrupt=0.2)).run(800)
    assert summary.counts["reload"] > 10


@pytest.mark.parametrize("block_size", [1, 4, 8])
def test_b21_prompts_that_end_with_a_block(block_size: int) -> None:
    # The shared prompts have 16, 24, 32 and 33 tokens; the ledger asks that a token is left to compute.
    engine = replace(BUSY.engine, block_size=block_size, num_blocks=160 // block_size)
    summary = World(21, replace(BUSY, engine=engine, num_agents=0)).run(600)
    assert summary.counts["engine: shared_tokens"] > 0


@pytest.mark.parametrize("prefix_cache", [True, False])
@pytest.mark.parametrize("num_blocks", [16, 160])
@pytest.mark.parametrize("policy", ["fcfs", "agent"])
def test_b22_preemption_and_cache_change_no_output(prefix_cache: bool, num_blocks: int, policy: str) -> None:
    engine = replace(BUSY.engine, num_blocks=num_blocks, prefix_cache=prefix_cache, policy=policy)
    summary = World(21, replace(BUSY, engine=engine)).run(700)
    preemptions = summary.counts["engine: preemptions"]
    assert preemptions > 0 if num_blocks == 16 else preemptions == 0
    # B29: whoever returns has room for all of its tokens, so preemption stays rare.
    assert preemptions <= summary.num_steps / 10


def test_b30_a_huge_prompt_among_short_turns() -> None:
    # The calm shows that the huge are served; here, that chunks leave room for others in the same step.
    engine = replace(BUSY.engine, max_chunk_tokens=4, max_batch_tokens=8, num_blocks=64, max_bypasses=0)
    summary = World(30, replace(BUSY, engine=engine, num_session_actors=6)).run(800)
    assert summary.counts["ended: length"] > 20


def test_b31_cancelling_everything_everywhere_leaks_nothing() -> None:
    counts = World(31, replace(BUSY, interrupt=0.9, pause_s=0.0)).run(1000).counts
    cancelled = {name: count for name, count in counts.items() if name.startswith("cancel: ")}
    assert sum(cancelled.values()) > 200
    assert set(cancelled) >= {f"cancel: {place}" for place in ("queued", "prefill", "decode", "agent run", "tool wait")}
