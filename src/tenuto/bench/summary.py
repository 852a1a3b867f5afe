"""Records of a run to the numbers that are reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
import numpy as np

from tenuto.bench.records import KVHeld, RunRecord, Speculation, TurnRecord


class Spread(msgspec.Struct, frozen=True):
    """Percentiles, in seconds; linear between the two values that a percentile falls between."""

    p50: float
    p99: float


class TokenCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Summed over all turns. What a system does not tell is None."""

    given: int
    generated: int
    computed: int | None
    held: int | None
    shared: int | None
    forced: int | None


class ContextPoint(msgspec.Struct, frozen=True):
    """TTFT of one turn of the agents, and how long their contexts were by then."""

    turn: int
    context: float  # median tokens
    ttft_s: float  # median


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """One run in numbers."""

    system: str
    mode: str
    settings: dict[str, str]
    agents: int
    turns: int
    wall_s: float
    agents_per_s: float
    tokens_per_s: float  # generated
    ttft_first_s: Spread
    ttft_after_tool_s: Spread | None  # None: only one turn
    tpot_s: Spread | None  # None: only one token a turn
    run_s: Spread
    tokens: TokenCounts
    tokens_per_decode_step: float | None
    speculation: Speculation | None
    kv: KVHeld | None
    num_steps: int | None
    by_turn: tuple[ContextPoint, ...]
    reasons: dict[str, str]


def spread(values: Iterable[float]) -> Spread | None:
    """None of nothing."""
    numbers = list(values)
    if not numbers:
        return None
    p50, p99 = np.percentile(numbers, [50, 99])
    return Spread(float(p50), float(p99))


def summarise(run: RunRecord) -> Summary:
    """Raises AssertionError if the run has no turns."""
    assert run.turns, "a run without turns has no numbers"
    turns = run.turns
    ttft_first = spread(t.ttft_s for t in turns if t.turn == 0)
    run_s = spread(_run_times(turns))
    assert ttft_first is not None and run_s is not None
    generated = sum(t.num_out for t in turns)
    steps = _sum(turns, lambda t: t.num_decode_steps)
    return Summary(
        system=run.system,
        mode=run.mode,
        settings=run.settings,
        agents=run.agents,
        turns=max(t.turn for t in turns) + 1,
        wall_s=run.wall_s,
        agents_per_s=run.agents / run.wall_s,
        tokens_per_s=generated / run.wall_s,
        ttft_first_s=ttft_first,
        ttft_after_tool_s=spread(t.ttft_s for t in turns if t.turn > 0),
        tpot_s=spread(t.tpot_s for t in turns if t.tpot_s is not None),
        run_s=run_s,
        tokens=TokenCounts(
            given=sum(t.num_in for t in turns),
            generated=generated,
            computed=_sum(turns, lambda t: t.num_computed),
            held=_sum(turns, lambda t: t.num_held),
            shared=_sum(turns, lambda t: t.num_shared),
            forced=_sum(turns, lambda t: t.num_forced),
        ),
        tokens_per_decode_step=None if not steps else generated / steps,
        speculation=run.speculation,
        kv=run.kv,
        num_steps=run.num_steps,
        by_turn=_by_turn(turns),
        reasons=run.reasons,
    )


def _run_times(turns: tuple[TurnRecord, ...]) -> list[float]:
    """Seconds from each agent's first request to its last id."""
    agents = sorted({t.agent for t in turns})
    own = [[t for t in turns if t.agent == agent] for agent in agents]
    return [max(t.end_s for t in of) - min(t.start_s for t in of) for of in own]


def _sum(turns: tuple[TurnRecord, ...], count: Callable[[TurnRecord], int | None]) -> int | None:
    counts = [count(turn) for turn in turns]
    return None if None in counts else sum(c for c in counts if c is not None)


def _by_turn(turns: tuple[TurnRecord, ...]) -> tuple[ContextPoint, ...]:
    points = []
    for turn in sorted({t.turn for t in turns}):
        same = [t for t in turns if t.turn == turn]
        context, ttft_s = (float(np.median(x)) for x in ([t.num_context for t in same], [t.ttft_s for t in same]))
        points.append(ContextPoint(turn, context, ttft_s))
    return tuple(points)
