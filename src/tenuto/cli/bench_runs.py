"""What `tenuto bench agents` does once its options are read: the runs, and what is made of them."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import msgspec
from rich.console import Console

from tenuto.bench.chat_agents import run_on_server
from tenuto.bench.driver import Progress as TurnProgress
from tenuto.bench.experiments import TOOL_LOOP, compare, curve, never_repeating, speculation_pairs
from tenuto.bench.local import LocalBench, token_workload
from tenuto.bench.machine import describe_machine
from tenuto.bench.plot import write_svg
from tenuto.bench.report import Ratio, Report
from tenuto.bench.shape import Shape
from tenuto.bench.summary import Summary, summarise
from tenuto.bench.token_agents import Mode
from tenuto.bench.tool_workload import make_tool_workload
from tenuto.bench.workload import make_texts
from tenuto.cli.bench_shown import plot_of, show_report, shown_turns
from tenuto.cli.fetching import fetch_model
from tenuto.clock import RealClock
from tenuto.config import Config
from tenuto.wiring import LoadedModel, load


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The command's options, checked."""

    config: Config
    shape: Shape
    workload: str
    mode: Mode
    is_curve: bool
    rounds: int  # of the comparison; 0: none
    baseline_agents: int
    pairs: int  # with and without speculation; 0: none
    url: str | None
    api_key: str | None = field(repr=False)

    @property
    def counts(self) -> tuple[int, ...]:
        """Agents of the runs."""
        return TOOL_LOOP if self.is_curve else (self.shape.agents,)

    @property
    def num_turns(self) -> int:
        """Turns of all runs together, for the progress."""
        turns, few = self.shape.turns, min(self.baseline_agents, self.shape.agents)
        if self.rounds:
            return self.rounds * turns * 2 * (few + self.shape.agents)
        return turns * sum(self.counts) * (2 * self.pairs or 1)


async def run_plan(plan: Plan, as_json: bool, plot: Path | None) -> None:
    """Raises what loading and running do."""
    console = Console(stderr=True)
    loaded = None
    if plan.url is None:
        fetch_model(plan.config)
        with console.status("loading the model ..."):
            loaded = await anyio.to_thread.run_sync(load, plan.config, RealClock())
    with shown_turns(console, plan.num_turns) as progress:
        runs, ratios = await (_on_server(plan, progress) if loaded is None else _here(plan, loaded, progress))
    report = Report(
        workload=plan.workload,
        shape=plan.shape,
        machine=describe_machine(),
        runs=tuple(runs),
        ratios=tuple(ratios),
    )
    if plot is not None:
        write_svg(plot_of(report, is_curve=plan.is_curve), plot)
    if as_json:
        sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
        sys.stdout.buffer.flush()
    else:
        show_report(report, Console(), is_curve=plan.is_curve)


async def _on_server(plan: Plan, progress: TurnProgress) -> tuple[list[Summary], list[Ratio]]:
    assert plan.url is not None
    runs = []
    for count in plan.counts:
        texts = make_texts(plan.shape.with_agents(count))
        run = await run_on_server(plan.url, texts, RealClock(), api_key=plan.api_key, progress=progress)
        runs.append(summarise(run))
    return runs, []


async def _here(plan: Plan, loaded: LoadedModel, progress: TurnProgress) -> tuple[list[Summary], list[Ratio]]:
    bench = LocalBench(loaded, plan.config, RealClock(), progress)
    sampled = never_repeating(plan.shape.seed) if plan.workload == "prose" else None
    if plan.workload == "tools":
        tools = make_tool_workload(plan.shape)
        if plan.pairs:
            return await speculation_pairs(lambda on: bench.run_tools(tools, speculation=on), plan.pairs)
        return [summarise(await bench.run_tools(tools))], []
    workload = token_workload(loaded, plan.shape.with_agents(max(plan.counts)))
    if plan.rounds:
        few = plan.baseline_agents
        return await compare(bench, workload, rounds=plan.rounds, baseline_agents=few)
    if plan.pairs:
        return await speculation_pairs(
            lambda on: bench.run(workload, plan.mode, speculation=on, sampled=sampled), plan.pairs
        )
    if plan.is_curve:
        return await curve(bench, workload, plan.counts, plan.mode), []
    return [summarise(await bench.run(workload, plan.mode, sampled=sampled))], []
