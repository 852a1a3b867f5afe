"""Ours and others in turns: the same work or none, and a failure of one spoils nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from bench_harness import small_workload

from tenuto.bench.driver import Progress
from tenuto.bench.peers.environment import PeerUnavailable
from tenuto.bench.peers.openvino import OpenVINO
from tenuto.bench.peers.peer import Place, longest, num_cores
from tenuto.bench.peers.rounds import Ours, prepare, rounds
from tenuto.bench.records import RunRecord, TurnRecord
from tenuto.bench.workload import TokenWorkload
from tenuto.errors import StepFailed, TenutoError, UnsupportedModel

WORKLOAD = small_workload()


def _record(name: str, wall_s: float, ids: tuple[int, ...] = (1, 2, 3, 4, 5)) -> RunRecord:
    turns, workload = [], WORKLOAD
    for agent, pieces in enumerate(workload.pieces):
        context = 0
        for turn, piece in enumerate(pieces):
            context += len(piece)
            turns.append(
                TurnRecord(
                    agent=agent,
                    turn=turn,
                    num_in=len(piece),
                    num_context=context,
                    num_out=workload.shape.output_tokens,
                    start_s=0.0,
                    first_s=wall_s / 2,
                    end_s=wall_s,
                    ids=ids,
                )
            )
            context += workload.shape.output_tokens
    shape = workload.shape
    return RunRecord(system=name, mode="m", settings={}, agents=shape.agents, turns=tuple(turns), wall_s=wall_s)


_REPLIES: dict[str, tuple[int, ...]] = {"近": (1, 2, 9, 4, 5), "远": (9, 2, 3, 4, 5), "无": ()}


class FakePeer:
    def __init__(self, name: str, run: Callable[[], RunRecord], *, preparing: Exception | None = None) -> None:
        self.name = name
        self._run = run
        self._preparing = preparing
        self.num_runs = 0

    def prepare(self) -> None:
        if self._preparing is not None:
            raise self._preparing

    async def run(self, workload: TokenWorkload, progress: Progress | None = None) -> RunRecord:
        self.num_runs += 1
        return self._run()


def _ours(wall_s: float = 2.0) -> Ours:
    async def run(_: TokenWorkload) -> RunRecord:
        return _record("tenuto", wall_s)

    return Ours("tenuto", run)


def _short(record: RunRecord, **change: int) -> RunRecord:
    turns = (msgspec.structs.replace(record.turns[0], **change), *record.turns[1:])
    return msgspec.structs.replace(record, turns=turns)


def test_ratios_are_of_the_same_round() -> None:
    times = iter([6.0, 10.0])
    peer = FakePeer("慢", lambda: _record("慢", next(times)))
    runs, (ratio,), lines = asyncio.run(rounds([_ours()], [peer], WORKLOAD, 2, None))
    assert [run.system for run in runs] == ["tenuto", "tenuto", "慢", "慢"]
    assert ratio.pairs == (3.0, 5.0) and ratio.value == 4.0
    assert lines == ["慢 begins its first replies as tenuto does: 100%"]
    assert "tenuto over 慢" in ratio.name


@pytest.mark.parametrize("change", [{"num_out": 4}, {"num_in": 1}, {"num_context": 1}, {"agent": 1}])
def test_a_peer_that_did_other_work_is_left_out_and_named(change: dict[str, int]) -> None:
    wrong = FakePeer("错", lambda: _short(_record("错", 1.0), **change))
    right = FakePeer("对", lambda: _record("对", 4.0))
    runs, ratios, failed = asyncio.run(rounds([_ours()], [wrong, right], WORKLOAD, 2, None))
    assert [run.system for run in runs] == ["tenuto", "tenuto", "对", "对"]
    assert len(ratios) == 1 and wrong.num_runs == 1
    assert len(failed) == 2 and "错 is left out" in failed[1] and "tokens in or out differ" in failed[1]


def test_a_peer_that_fails_later_keeps_what_it_measured() -> None:
    left = [_record("停", 8.0)]

    def run() -> RunRecord:
        if not left:
            raise PeerUnavailable("its process ended")
        return left.pop()

    runs, (ratio,), failed = asyncio.run(rounds([_ours()], [FakePeer("停", run)], WORKLOAD, 3, None))
    assert ratio.pairs == (4.0,) and failed[-1] == "停 is left out: its process ended" and len(runs) == 4


def test_replies_are_compared_up_to_where_they_part() -> None:
    peers = [FakePeer(name, lambda ids=ids: _record("x", 1.0, ids)) for name, ids in _REPLIES.items()]
    _, _, lines = asyncio.run(rounds([_ours()], peers, WORKLOAD, 1, None))
    assert [line.rsplit(" ", 1)[1] for line in lines] == ["40%", "0%", "0%"]


def test_ours_may_not_fail_nor_do_other_work() -> None:
    async def fails(_: TokenWorkload) -> RunRecord:
        raise StepFailed("坏了")

    with pytest.raises(StepFailed):
        asyncio.run(rounds([Ours("tenuto", fails)], [], WORKLOAD, 1, None))

    async def less(_: TokenWorkload) -> RunRecord:
        return _short(_record("tenuto", 1.0), num_out=1)

    with pytest.raises(TenutoError, match="other work"):
        asyncio.run(rounds([Ours("tenuto", less)], [], WORKLOAD, 1, None))


def test_what_cannot_be_prepared_is_named_and_the_others_go_on() -> None:
    told: list[str] = []
    good = FakePeer("好", lambda: _record("好", 1.0))
    bad = [
        FakePeer("缺", lambda: _record("缺", 1.0), preparing=PeerUnavailable("install failed: no such package")),
        FakePeer("异", lambda: _record("异", 1.0), preparing=UnsupportedModel("only a GGUF file")),
    ]
    ready, missing = prepare([bad[0], good, bad[1]], told.append)
    assert ready == [good] and len(told) == 3
    assert missing == ["缺 is left out: install failed: no such package", "异 is left out: only a GGUF file"]


def test_places_keep_models_apart_and_sizes_follow_from_the_workload(tmp_path: Path) -> None:
    a, b = (Place(tmp_path, tmp_path / "m.gguf", fingerprint) for fingerprint in ("a" * 64, "b" * 64))
    assert a.models != b.models and a.models.parent == b.models.parent
    assert longest(WORKLOAD) == max(WORKLOAD.num_tokens(agent) for agent in range(3))
    assert num_cores() >= 1
    assert OpenVINO(a).name == "OpenVINO GenAI"
