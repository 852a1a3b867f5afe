"""What was computed for which run, so that its KV can be found when the run is over."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tenuto.ids import TokenId
from tenuto.protocol.hints import RunHints

Ids: TypeAlias = NDArray[np.int32]  # of one way that a run went, prompt and replies; [num_tokens]
_Key: TypeAlias = tuple[str, str, str]  # tenant, salt, run


@dataclass(frozen=True)
class RunLimits:
    """How much is remembered. Of runs that were forgotten only what a request spells out can be released."""

    max_ways: int = 8  # of one run: a rewritten history is a way of its own. The newest stay
    max_tokens: int = 2_000_000  # of all runs together
    ttl_s: float = 3600.0  # after a run's last request


@dataclass
class _Run:
    ways: list[Ids] = field(default_factory=list)  # newest last
    last_s: float = 0.0

    @property
    def num_tokens(self) -> int:
        return sum(len(way) for way in self.ways)


class ComputedRuns:
    """The ids computed for each run, within bounds; the longest idle is forgotten first."""

    def __init__(self, limits: RunLimits = RunLimits()) -> None:
        self._limits = limits
        self._runs: OrderedDict[_Key, _Run] = OrderedDict()  # the longest idle first
        self._num_tokens = 0

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, hints: RunHints, ids: Sequence[TokenId], now: float) -> None:
        """The ids have KV, or will have. Without a run nothing is remembered."""
        if hints.run is None or not ids:
            return
        key = _key(hints)
        run = self._take(key) or _Run()
        way = np.array(ids, np.int32)
        if not any(_begins(known, way) for known in run.ways):
            run.ways = [known for known in run.ways if not _begins(way, known)] + [way]
            del run.ways[: -self._limits.max_ways]
        run.last_s = now
        self._runs[key] = run
        self._num_tokens += run.num_tokens
        self._forget(now)

    def of(self, hints: RunHints) -> tuple[Ids, ...]:
        """The ways of the hints' run, newest first."""
        run = self._runs.get(_key(hints)) if hints.run is not None else None
        return () if run is None else tuple(reversed(run.ways))

    def drop(self, hints: RunHints) -> None:
        if hints.run is not None:
            self._take(_key(hints))

    def _take(self, key: _Key) -> _Run | None:
        run = self._runs.pop(key, None)
        if run is not None:
            self._num_tokens -= run.num_tokens
        return run

    def _forget(self, now: float) -> None:
        while self._runs:
            oldest = next(iter(self._runs.values()))
            if self._num_tokens <= self._limits.max_tokens and now - oldest.last_s <= self._limits.ttl_s:
                return
            self._take(next(iter(self._runs)))


def _key(hints: RunHints) -> _Key:
    return hints.tenant, hints.salt, hints.run or ""


def _begins(whole: Ids, part: Ids) -> bool:
    """Whether `whole` begins with `part`."""
    return len(part) <= len(whole) and bool((whole[: len(part)] == part).all())
