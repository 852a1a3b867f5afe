"""Whom to serve, and whose KV to give up: pure functions over data.

Imports only `protocol` (and so could serve another engine's plugin). A policy is a sort key: the smallest comes
first. Every key ends with the serial number, so that the order is total and a seed replays it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias, TypeVar

RankKey: TypeAlias = tuple[float, ...]


class RequestView(Protocol):
    """What a policy may know of a request."""

    @property
    def serial(self) -> int:
        """Order of arrival; kept when preempted."""
        ...

    @property
    def arrival_s(self) -> float: ...

    @property
    def priority(self) -> int: ...

    @property
    def attained_tokens(self) -> int:
        """Tokens computed so far for the run the request belongs to."""
        ...

    @property
    def is_resident(self) -> bool:
        """Some of its KV is in the pool: it runs, or returns to a held session."""
        ...


class SessionView(Protocol):
    """What a policy may know of a session that computes for nobody."""

    @property
    def serial(self) -> int: ...

    @property
    def last_used_s(self) -> float: ...

    @property
    def expected_end_s(self) -> float | None:
        """When its wait is expected to end; None: unknown."""
        ...


RequestT = TypeVar("RequestT", bound=RequestView)
SessionT = TypeVar("SessionT", bound=SessionView)
RankPolicy: TypeAlias = Callable[[RequestView, float, float], RankKey]


def fcfs(request: RequestView, now: float, patience_s: float) -> RankKey:
    """First come, first served: the baseline."""
    return (request.serial,)


def agent(request: RequestView, now: float, patience_s: float) -> RankKey:
    """Least attained service per run, with ageing.

    In order: priority, plus one level for each `patience_s` since arrival, so that nobody waits for ever behind
    younger requests; those whose KV is resident before fresh ones; the run that got the fewest tokens so far;
    order of arrival.
    """
    level = request.priority + (now - request.arrival_s) // patience_s
    return (-level, not request.is_resident, request.attained_tokens, request.serial)


def rank(requests: Iterable[RequestT], policy: RankPolicy, now: float, patience_s: float) -> list[RequestT]:
    """The requests, best first."""
    return sorted(requests, key=lambda r: policy(r, now, patience_s))


def oldest_session(sessions: Sequence[SessionT], now: float) -> SessionT:
    """The session to discard first: least recently used (baseline)."""
    return min(sessions, key=lambda s: (s.last_used_s, s.serial))


def longest_waiting_session(sessions: Sequence[SessionT], now: float) -> SessionT:
    """The session to discard first: the one that will not be back for the longest time.

    An unknown wait is guessed to last as long again as it has lasted already.
    """

    def key(session: SessionT) -> tuple[float, int]:
        end = session.expected_end_s
        remaining = now - session.last_used_s if end is None or end < now else end - now
        return (-remaining, session.serial)

    return min(sessions, key=key)
