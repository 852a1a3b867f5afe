"""How a benchmark looks: while it runs, its tables, and its plot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from tenuto.bench.plot import Plot, Series
from tenuto.bench.records import TurnRecord
from tenuto.bench.report import Ratio, Report, best_of
from tenuto.bench.summary import Summary
from tenuto.bench.tables import comparison, curve


@contextmanager
def shown_turns(console: Console, num_turns: int) -> Iterator[Callable[[TurnRecord], None]]:
    """A bar that advances with each turn of each agent; nothing where there is no terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("turns", total=num_turns)
        yield lambda _: bar.advance(task)


def show_report(report: Report, console: Console, *, is_curve: bool = False) -> None:
    """Of several runs of one kind the fastest is shown; JSON holds all."""
    machine = report.machine
    about = f"{machine['processor']}, {machine['cores']} cores, load {machine['load']}; {machine['instructions']}"
    console.print(f"[dim]{about}[/]", highlight=False)
    best = best_of(report.runs)
    console.print(curve(best) if is_curve else comparison(best))
    settings = best[0].settings
    console.print(f"[dim]{', '.join(f'{k} {v}' for k, v in settings.items() if v)}[/]", highlight=False)
    if report.ratios:
        console.print(ratios_table(report.ratios))
    for note in report.notes:
        console.print(note, highlight=False, markup=False)


def ratios_table(ratios: tuple[Ratio, ...]) -> Table:
    table = Table(caption="Each ratio is the median over pairs of runs of these minutes.", caption_justify="left")
    table.add_column("ratio")
    for name in ("median", "least", "most", "pairs"):
        table.add_column(name, justify="right")
    for one in ratios:
        numbers = (f"{x:.3g}" for x in (one.value, min(one.pairs), max(one.pairs)))
        table.add_row(one.name, *numbers, str(len(one.pairs)))
    return table


def plot_of(report: Report, *, is_curve: bool) -> Plot:
    """Agents per second against agents, or the time to the first token turn by turn."""
    best = best_of(report.runs)
    if is_curve:
        lines = {f"{s.system}, {s.mode}": _curve(s, best) for s in best}
        return Plot(
            title="Agents per second",
            x_label="agents at once",
            y_label="agents/s",
            series=tuple(Series(name, points) for name, points in lines.items()),
            log_x=True,
        )
    return Plot(
        title="Time to the first token, median of the agents",
        x_label="turn",
        y_label="seconds",
        series=tuple(Series(f"{s.system}, {s.mode}", tuple((p.turn + 1.0, p.ttft_s) for p in s.by_turn)) for s in best),
    )


def _curve(of: Summary, runs: list[Summary]) -> tuple[tuple[float, float], ...]:
    same = (run for run in runs if (run.system, run.mode) == (of.system, of.mode))
    return tuple((float(run.agents), run.agents_per_s) for run in same)
