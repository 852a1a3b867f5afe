"""The experiments of `tenuto bench agents` on our own engine: which runs, in which order, and their ratios."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from tenuto.bench.local import LocalBench
from tenuto.bench.records import RunRecord
from tenuto.bench.report import Ratio, ratio
from tenuto.bench.summary import Summary, summarise
from tenuto.bench.token_agents import Mode, Sampled
from tenuto.bench.workload import TokenWorkload
from tenuto.protocol.engine import SamplingParams

TOOL_LOOP = (1, 2, 4, 8, 16)  # agents of the preset


async def curve(bench: LocalBench, workload: TokenWorkload, counts: Sequence[int], mode: Mode) -> list[Summary]:
    """One run for each number of agents; the workload must have the most of them."""
    return [summarise(await bench.run(workload.first_agents(count), mode)) for count in counts]


async def compare(
    bench: LocalBench, workload: TokenWorkload, *, rounds: int, baseline_agents: int
) -> tuple[list[Summary], list[Ratio]]:
    """Held and all at once, against one at a time with re-prefill; with nothing guessed in either, then with all on.

    The baseline is slow and its rate does not depend on how many agents there are, so it gets fewer. What is compared
    is run in turns, so that a machine that grows slower or faster does so for all.
    """
    few = workload.first_agents(min(baseline_agents, workload.shape.agents))
    base: list[Summary] = []
    serial: list[Summary] = []
    held: list[Summary] = []
    full: list[Summary] = []
    for _ in range(rounds):
        base.append(summarise(await bench.run(few, "reprefill", speculation=False)))
        serial.append(summarise(await bench.run(few, "serial", speculation=False)))
        held.append(summarise(await bench.run(workload, "held", speculation=False)))
        full.append(_named(summarise(await bench.run(workload, "held", speculation=True)), "held, speculation"))
    ratios = [
        ratio("agents/s: held at once over one at a time with re-prefill", _rates(held), _rates(base)),
        ratio("agents/s: the same with speculation on", _rates(full), _rates(base)),
        ratio("agents/s: held over re-prefill, both one at a time", _rates(serial), _rates(base)),
        ratio("TTFT of the last turn: held over re-prefill, one at a time", _last_ttft(serial), _last_ttft(base)),
    ]
    return [*base, *serial, *held, *full], ratios


async def speculation_pairs(
    run: Callable[[bool], Awaitable[RunRecord]], num_pairs: int
) -> tuple[list[Summary], list[Ratio]]:
    """Runs with and without speculation, in turns, and which of them goes first in turns too.

    Args:
        run: one run, with speculation on or off.
    """
    on: list[Summary] = []
    off: list[Summary] = []
    for number in range(num_pairs):
        for speculation in (True, False) if number % 2 else (False, True):
            done = summarise(await run(speculation))
            name = f"{done.mode}, speculation {'on' if speculation else 'off'}"
            (on if speculation else off).append(_named(done, name))
    return [*on, *off], [ratio("agents/s: speculation on over off", _rates(on), _rates(off))]


def never_repeating(seed: int) -> Sampled:
    """Sampled text, which goes on without falling into the loops that a small model's greedy text falls into."""

    def sampled(agent: int) -> SamplingParams:
        return SamplingParams(temperature=1.0, top_p=0.95, seed=seed * 1000 + agent)

    return sampled


def _rates(runs: Sequence[Summary]) -> list[float]:
    return [run.agents_per_s for run in runs]


def _last_ttft(runs: Sequence[Summary]) -> list[float]:
    return [run.by_turn[-1].ttft_s for run in runs]


def _named(run: Summary, mode: str) -> Summary:
    return msgspec.structs.replace(run, mode=mode)
