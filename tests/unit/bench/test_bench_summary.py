"""The arithmetic of reports."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tenuto.bench.machine import describe_machine
from tenuto.bench.records import KVHeld, RunRecord, Speculation, TurnRecord
from tenuto.bench.report import Report, best_of, ratio
from tenuto.bench.shape import Shape
from tenuto.bench.summary import Spread, Summary, spread, summarise
from tenuto.bench.tables import comparison, curve, seconds


def _turn(agent: int, turn: int, start_s: float, first_s: float, end_s: float, **more: int | None) -> TurnRecord:
    more = {"num_in": 10, "num_context": 10 * (turn + 1), "num_out": 5} | more
    return TurnRecord(agent=agent, turn=turn, start_s=start_s, first_s=first_s, end_s=end_s, **more)  # type: ignore[arg-type]


TURNS = (
    _turn(0, 0, 0.0, 1.0, 3.0, num_computed=10, num_decode_steps=5),
    _turn(0, 1, 4.0, 4.5, 5.0, num_computed=11, num_decode_steps=2),
    _turn(1, 0, 0.0, 2.0, 4.0, num_computed=3, num_decode_steps=5),
    _turn(1, 1, 5.0, 5.1, 8.0, num_computed=11, num_decode_steps=1),
)


def _run(turns: tuple[TurnRecord, ...] = TURNS, **more: object) -> RunRecord:
    values = {"system": "引擎", "mode": "held", "settings": {"precision": "int8"}, "agents": 2, "wall_s": 8.0} | more
    return RunRecord(turns=turns, **values)  # type: ignore[arg-type]


def test_percentiles_lie_between_values() -> None:
    assert spread([]) is None
    assert spread([3.0]) == Spread(3.0, 3.0)
    assert spread(range(101)) == Spread(50.0, 99.0)
    half = spread([1.0, 2.0])
    assert half is not None and (half.p50, half.p99) == (1.5, pytest.approx(1.99))


def test_a_run_in_numbers() -> None:
    summary = summarise(_run())
    assert summary.agents_per_s == 2 / 8
    assert summary.tokens_per_s == 20 / 8
    assert summary.ttft_first_s.p50 == 1.5
    assert summary.ttft_after_tool_s is not None and summary.ttft_after_tool_s.p50 == pytest.approx(0.3)
    assert summary.tpot_s is not None and summary.tpot_s.p50 == pytest.approx(0.5)  # of 0.5, 0.125, 0.5, 0.725
    assert summary.run_s.p50 == 6.5  # 5 and 8
    assert summary.tokens.given == 40 and summary.tokens.generated == 20 and summary.tokens.computed == 35
    assert summary.tokens_per_decode_step == 20 / 13
    assert [(p.turn, p.context, p.ttft_s) for p in summary.by_turn] == [(0, 10, 1.5), (1, 20, pytest.approx(0.3))]


def test_what_a_system_does_not_tell_is_none_and_not_0() -> None:
    silent = tuple(msgspec.structs.replace(t, num_computed=None, num_decode_steps=None) for t in TURNS)
    summary = summarise(_run(silent))
    assert summary.tokens.computed is None and summary.tokens.held is None and summary.tokens_per_decode_step is None
    one_silent = (*TURNS[:3], silent[3])
    assert summarise(_run(one_silent)).tokens.computed is None, "a sum without some of its parts is no sum"


def test_single_turns_and_tokens_have_no_second() -> None:
    summary = summarise(_run((_turn(0, 0, 0.0, 1.0, 1.0, num_out=1),), agents=1, wall_s=1.0))
    assert summary.tpot_s is None and summary.ttft_after_tool_s is None


def test_ratios_are_medians_over_pairs() -> None:
    found = ratio("x", [2.0, 9.0, 4.0], [1.0, 3.0, 4.0])
    assert found.pairs == (2.0, 3.0, 1.0) and found.value == 2.0
    with pytest.raises(AssertionError):
        ratio("x", [1.0], [1.0, 2.0])


def test_of_several_runs_of_a_kind_the_fastest_stands() -> None:
    slow, fast = summarise(_run()), summarise(_run(wall_s=4.0))
    other = summarise(_run(mode="serial"))
    assert best_of([slow, fast, other]) == [fast, other]


def test_a_report_is_json_and_comes_back_the_same() -> None:
    kv = KVHeld(kv_bytes=100, num_tokens=10, bytes_per_token=5, separate_bf16_bytes=400)
    run = _run(kv=kv, speculation=Speculation(num_drafted=8, num_accepted=3), num_steps=9, reasons={"a": "因为"})
    report = Report(
        workload="agents",
        shape=Shape(),
        machine=describe_machine(),
        runs=(summarise(run),),
        ratios=(ratio("r", [1.0], [2.0]),),
    )
    data = msgspec.json.encode(report)
    assert msgspec.json.decode(data, type=Report) == report
    plain = msgspec.json.decode(data)
    assert set(plain) == {"workload", "shape", "machine", "runs", "ratios", "notes"}
    assert set(plain["runs"][0]) == set(Summary.__struct_fields__)
    assert plain["runs"][0]["kv"]["separate_bf16_bytes"] == 400


def test_tables_show_what_is_known_and_leave_out_what_nobody_tells() -> None:
    known = summarise(_run(kv=KVHeld(kv_bytes=100, num_tokens=1, bytes_per_token=1, separate_bf16_bytes=400)))
    table = comparison([known, summarise(_run(mode="other"))])
    names = [str(cell) for cell in table.columns[0].cells]
    assert "  of separate bf16 caches" in names and "  drafted" not in names
    row = names.index("  of separate bf16 caches")
    assert [list(column.cells)[row] for column in table.columns[1:]] == ["25 %", "–"]
    assert curve([known]).row_count == 1
    assert seconds(Spread(0.0123, 0.5)) == "12 / 500 ms" and seconds(Spread(0.5, 2.0)) == "0.50 / 2.00 s"


def test_a_machine_without_cpuinfo_is_described_all_the_same(tmp_path: Path) -> None:
    machine = describe_machine(tmp_path / "nothing")
    assert machine["processor"] and machine["instructions"] == "" and int(machine["cores"]) >= 1
    fake = tmp_path / "cpuinfo"
    fake.write_text(
        "model name\t: 处理器 9000\nflags\t\t: sse avx2 amx_int8\n\nmodel name\t: another\n", encoding="utf-8"
    )
    machine = describe_machine(fake)
    assert machine["processor"] == "处理器 9000" and machine["instructions"] == "avx2 amx_int8"
