"""What a whole benchmark gives: every run, and ratios of runs of the same minutes on the same machine."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from tenuto.bench.shape import Shape
from tenuto.bench.summary import Summary


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """A number over another, pair by pair; the value is the median of the pairs'."""

    name: str
    value: float
    pairs: tuple[float, ...]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Written as JSON by `--json`."""

    workload: str
    shape: Shape
    machine: dict[str, str]
    runs: tuple[Summary, ...]  # in the order they were made
    ratios: tuple[Ratio, ...] = ()
    notes: tuple[str, ...] = ()  # what was left out, and why


def ratio(name: str, over: Sequence[float], under: Sequence[float]) -> Ratio:
    """Raises AssertionError for lists of unequal length, nothing, or a division by 0."""
    assert len(over) == len(under) > 0 and all(under), "ratios need pairs"
    pairs = tuple(a / b for a, b in zip(over, under, strict=True))
    return Ratio(name=name, value=float(np.median(pairs)), pairs=pairs)


def best_of(runs: Sequence[Summary]) -> list[Summary]:
    """Of the runs of one system and mode the fastest: others on the machine only ever slow a run down."""
    best: dict[tuple[str, str, int], Summary] = {}
    for run in runs:
        key = (run.system, run.mode, run.agents)
        if key not in best or run.wall_s < best[key].wall_s:
            best[key] = run
    return list(best.values())
