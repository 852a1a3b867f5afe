"""What `tenuto bench peers` does once its options are read."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import msgspec
from rich.console import Console
from rich.table import Table

from tenuto.bench.local import LocalBench, token_workload
from tenuto.bench.machine import describe_machine
from tenuto.bench.peers.llama_cpp import LlamaCpp
from tenuto.bench.peers.openvino import OpenVINO
from tenuto.bench.peers.peer import Peer, Place
from tenuto.bench.peers.rounds import Ours, prepare, rounds
from tenuto.bench.peers.vllm import VLLM
from tenuto.bench.plot import write_svg
from tenuto.bench.records import RunRecord
from tenuto.bench.report import Report, best_of
from tenuto.bench.shape import Shape
from tenuto.bench.workload import TokenWorkload
from tenuto.cli.bench_shown import plot_of, show_report, shown_turns
from tenuto.cli.fetching import fetch_model
from tenuto.clock import RealClock
from tenuto.config import Config
from tenuto.ids import TokenId
from tenuto.wiring import LoadedModel, load

_MAKERS: dict[str, Callable[[Place], list[Peer]]] = {
    "openvino": lambda place: [OpenVINO(place)],
    "llama.cpp": lambda place: [LlamaCpp(place, "Q8_0", RealClock()), LlamaCpp(place, "Q4_0", RealClock())],
    "vllm": lambda place: [VLLM(place, RealClock())],
}
NAMES = tuple(_MAKERS)


@dataclass(frozen=True)
class PeersPlan:
    """The command's options, checked."""

    config: Config
    shape: Shape
    peers: tuple[str, ...]
    folder: Path
    pip_flags: tuple[str, ...]
    rounds: int


async def run_peers(plan: PeersPlan, as_json: bool, plot: Path | None) -> None:
    """Raises what loading and our own runs do; a peer that fails is named in the report."""
    console = Console(stderr=True)
    fetch_model(plan.config)
    with console.status("loading the model ..."):
        loaded = await anyio.to_thread.run_sync(load, plan.config, RealClock())
    place = Place(plan.folder, loaded.path, loaded.fingerprint, plan.pip_flags, _partial_ids(loaded))
    wanted = [peer for name in plan.peers for peer in _MAKERS[name](place)]
    with console.status("") as status:
        ready, missing = await anyio.to_thread.run_sync(prepare, wanted, status.update)
    workload = token_workload(loaded, plan.shape)
    turns = plan.rounds * plan.shape.agents * plan.shape.turns
    with shown_turns(console, turns * (2 + len(ready))) as progress:
        bench = LocalBench(loaded, plan.config, RealClock(), progress)
        ours = [Ours("tenuto", partial(_own, bench, False)), Ours("tenuto, speculation", partial(_own, bench, True))]
        runs, ratios, failed = await rounds(ours, ready, workload, plan.rounds, progress)
    report = Report(
        workload="peers",
        shape=plan.shape,
        machine=describe_machine(),
        runs=tuple(runs),
        ratios=tuple(ratios),
        notes=(*missing, *failed),
    )
    if plot is not None:
        write_svg(plot_of(report, is_curve=False), plot)
    if as_json:
        sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
        sys.stdout.buffer.flush()
        return
    show_report(report, Console())
    Console().print(_reasons(report))


async def _own(bench: LocalBench, speculation: bool, workload: TokenWorkload) -> RunRecord:
    run = await bench.run(workload, "held", speculation=speculation)
    return msgspec.structs.replace(run, mode="held, speculation" if speculation else "held")


def _partial_ids(loaded: LoadedModel) -> tuple[int, ...]:
    """Tokens that are not whole characters."""
    tokenizer = loaded.text.tokenizer
    return tuple(i for i in range(tokenizer.vocab_size) if "\ufffd" in tokenizer.decode([TokenId(i)]))


def _reasons(report: Report) -> Table:
    table = Table(title="What the others were told, and why", title_justify="left")
    for name in ("engine", "setting", "value", "why"):
        table.add_column(name)
    for run in best_of(report.runs):
        for name, why in run.reasons.items():
            table.add_row(run.system, name, run.settings.get(name, ""), why)
    return table
