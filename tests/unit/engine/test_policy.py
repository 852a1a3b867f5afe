from dataclasses import dataclass

from tenuto.engine import policy


@dataclass
class Candidate:
    serial: int
    arrival_s: float = 0.0
    priority: int = 0
    attained_tokens: int = 0
    is_resident: bool = False


@dataclass
class Holder:
    serial: int
    last_used_s: float = 0.0
    expected_end_s: float | None = None


def order(requests: list[Candidate], chosen: policy.RankPolicy, now: float = 0.0) -> list[int]:
    return [r.serial for r in policy.rank(requests, chosen, now, 10.0)]


def test_fcfs_is_order_of_arrival() -> None:
    assert order([Candidate(2, priority=9), Candidate(1), Candidate(3, is_resident=True)], policy.fcfs) == [1, 2, 3]


def test_agent_ranks_by_priority_residence_and_service() -> None:
    requests = [
        Candidate(1, attained_tokens=50),
        Candidate(2, attained_tokens=5),
        Candidate(3, attained_tokens=900, is_resident=True),
        Candidate(4, attained_tokens=900, priority=1),
    ]
    assert order(requests, policy.agent) == [4, 3, 2, 1]


def test_ageing_outweighs_everything_in_time() -> None:
    old = Candidate(1, arrival_s=0.0, attained_tokens=10_000)
    for now in (10.0, 100.0, 1000.0):
        younger = [Candidate(2, arrival_s=now - 9, is_resident=True), Candidate(3, arrival_s=now - 1)]
        assert order([*younger, old], policy.agent, now)[0] == 1


def test_idle_sessions_to_discard() -> None:
    sessions = [
        Holder(1, last_used_s=5.0, expected_end_s=100.0),
        Holder(2, last_used_s=3.0),
        Holder(3, last_used_s=9.0),
    ]
    assert policy.oldest_session(sessions, 10.0).serial == 2
    assert policy.longest_waiting_session(sessions, 10.0).serial == 1
    # Unknown and overdue waits are guessed to last as long again.
    assert policy.longest_waiting_session(sessions, 200.0).serial == 2
