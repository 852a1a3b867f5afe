"""How long something takes, told from many runs of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

_TURN_RUNS = 3


@dataclass(frozen=True)
class Effort:
    """How long each thing is measured."""

    least_s: float = 0.25
    least_runs: int = 5
    most_runs: int = 2000


@dataclass(frozen=True)
class Timing:
    best_s: float  # others on the machine only ever add
    median_s: float
    num_runs: int


def time_runs(run: Callable[[], object], now: Callable[[], float], effort: Effort) -> Timing:
    """See `time_in_turns`."""
    return time_in_turns([run], now, effort)[0]


def time_in_turns(runs: list[Callable[[], object]], now: Callable[[], float], effort: Effort) -> list[Timing]:
    """Several things in turns, so that what the machine does meanwhile happens to all of them.

    Args:
        now: seconds, steady.

    A turn is a few runs, the first of them not counted: it finds in the caches what the others have left there.
    """
    times: list[list[float]] = [[] for _ in runs]
    begin = now()
    while len(times[0]) < effort.most_runs:
        for run, taken in zip(runs, times, strict=True):
            run()
            for _ in range(_TURN_RUNS):
                start = now()
                run()
                taken.append(now() - start)
        if len(times[0]) >= effort.least_runs and now() - begin >= effort.least_s * len(runs):
            break
    return [Timing(min(taken), median(taken), len(taken)) for taken in times]
