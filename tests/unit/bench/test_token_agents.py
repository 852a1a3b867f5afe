"""Agents of tokens on a scripted engine, in virtual time: what is sent, what is recorded, what a failure leaves."""

from __future__ import annotations

import pytest
from bench_harness import SMALL, following, run_on, small_workload

from tenuto.bench.records import RunRecord, TurnRecord
from tenuto.bench.summary import summarise
from tenuto.errors import StepFailed
from tenuto.testing.scripted_engine import ScriptedEngine

TURNS_OF_TOOLS_S = (SMALL.turns - 1) * SMALL.tool_s


def _run(turns: tuple[TurnRecord, ...]) -> RunRecord:
    wall_s = max(t.end_s for t in turns)
    return RunRecord(system="s", mode="m", settings={}, agents=SMALL.agents, turns=turns, wall_s=wall_s)


@pytest.mark.parametrize(("mode", "wall_s"), [("held", TURNS_OF_TOOLS_S), ("serial", 3 * TURNS_OF_TOOLS_S)])
def test_only_tools_take_time_at_once_or_in_turn(mode: str, wall_s: float) -> None:
    turns, _ = run_on(ScriptedEngine(following), small_workload(), mode=mode)
    assert max(t.end_s for t in turns) == pytest.approx(wall_s)
    summary = summarise(_run(turns))
    assert summary.run_s.p50 == pytest.approx(TURNS_OF_TOOLS_S)
    assert summary.agents_per_s == pytest.approx(SMALL.agents / wall_s)


def test_every_mode_says_the_same_and_counts_what_it_computed() -> None:
    workload = small_workload()
    outputs, computed = [], []
    for mode in ("held", "serial", "reprefill"):
        engine = ScriptedEngine(following, block_size=1 << 20)  # so large that nothing is ever shared
        turns, agents = run_on(engine, workload, mode=mode)
        outputs.append(agents.outputs)
        computed.append(sum(t.num_computed or 0 for t in turns))
        assert [(t.agent, t.turn) for t in turns] == [(a, t) for a in range(3) for t in range(4)]
        for t in turns:
            assert t.num_in == len(workload.pieces[t.agent][t.turn]) and t.num_out == t.num_decode_steps == 5
            assert t.num_context == (t.num_held or 0) + (t.num_shared or 0) + (t.num_computed or 0)
    assert outputs[0] == outputs[1] == outputs[2]
    # What is held is the history without the last id of each earlier turn, which was never computed.
    extra = SMALL.agents * (SMALL.turns - 1)
    assert computed[0] == computed[1] == workload.num_in + extra
    assert computed[2] == sum(t.num_context for t in turns) > computed[0]


def test_sessions_stay_open_only_where_they_are_held_and_are_told_of_tools() -> None:
    held = ScriptedEngine(following)
    _, agents = run_on(held, small_workload(), mode="held")
    assert set(held.sessions) == set(agents.sessions) and len(agents.sessions) == SMALL.agents
    assert len(held.suspends) == SMALL.agents * (SMALL.turns - 1)
    assert {wait.seconds for _, wait in held.suspends} == {SMALL.tool_s}
    again = ScriptedEngine(following)
    _, agents = run_on(again, small_workload(), mode="reprefill")
    assert not again.sessions and not agents.sessions and not again.suspends


def test_turns_never_stop_early_and_are_greedy() -> None:
    engine = ScriptedEngine(following)
    run_on(engine, small_workload(), mode="held")
    assert {(p.max_tokens, p.stop_ids, p.sampling.temperature) for p in engine.params} == {(5, frozenset(), 0.0)}


def test_progress_is_told_of_every_turn() -> None:
    seen: list[TurnRecord] = []
    turns, _ = run_on(ScriptedEngine(following), small_workload(), mode="held", progress=seen.append)
    assert sorted(seen, key=lambda t: (t.agent, t.turn)) == list(turns)


def test_the_first_failure_is_raised_and_nobody_goes_on() -> None:
    failures: list[str] = []

    def fault(call: str, number: int) -> Exception | None:
        if call == "delta" and number > 30:
            failures.append(call)
            return StepFailed("坏了")
        return None

    engine = ScriptedEngine(following, fault=fault)
    with pytest.raises(StepFailed, match="坏了"):
        run_on(engine, small_workload(), mode="held")
    assert len(failures) <= SMALL.agents, "the others were cancelled, or failed in the same moment"
