"""`tenuto compare`: two settings of a model, and how they differ."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from tenuto.cli import options
from tenuto.cli.fetching import fetch_model

_KV_TOKENS = 8192  # for the tool calls: their prompts share most of their tokens


class _Stages:
    """A bar on a terminal, else a line as each stage begins."""

    def __init__(self, console: Console, bar: Progress) -> None:
        self._console = console
        self._bar = bar
        self._task: TaskID | None = None

    def begin(self, what: str, total: int) -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
        if self._console.is_terminal:
            self._task = self._bar.add_task(escape(what), total=total)
        else:
            self._console.print(f"{what} ...", highlight=False, markup=False, soft_wrap=True)

    def advance(self) -> None:
        if self._task is not None:
            self._bar.advance(self._task)


@contextmanager
def _shown_stages() -> Iterator[_Stages]:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield _Stages(console, bar)


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="What B is measured by: fp32, int8/int8, name=value,...")],
    b: Annotated[str, typer.Argument(metavar="B", help="The same; model=PATH is another model of one tokenizer.")],
    model: options.Model = None,
    threads: options.Threads = None,
    only: Annotated[
        str | None,
        typer.Option(help="Some of accuracy, layers, copies, calls, speed; with commas.", show_default="all"),
    ] = None,
    tokens: Annotated[int, typer.Option(min=2, help="Most tokens of each text.")] = 8192,
    text: Annotated[
        list[Path] | None, typer.Option(help="A text of your own instead; may be given again.", show_default=False)
    ] = None,
    prompts: Annotated[int, typer.Option(min=1, max=256, help="Prompts that want a tool call.")] = 128,
    max_kl: Annotated[float | None, typer.Option(min=0, help="Fail above this mean KL, on any text.")] = None,
    max_ppl: Annotated[
        float | None, typer.Option(min=0, help="Fail if perplexity changes by more, in percent, on any text.")
    ] = None,
    min_calls: Annotated[
        float | None, typer.Option(min=0, max=100, help="Fail if fewer tool calls are the same, in percent.")
    ] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Fail if B is unsafe for exact numbers and code.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Write KL by position there, as SVG.", show_default=False)] = None,
) -> None:
    """Say how two settings of a model differ: predictions, layers, copies, tool calls, memory, speed."""
    from tenuto.cli.comparison import Side  # these bring in torch: seconds that `--help` need not wait for
    from tenuto.cli.comparison import compare as measure
    from tenuto.cli.comparison_plot import check_plot, write_plot
    from tenuto.cli.comparison_table import show
    from tenuto.compare.plan import Plan, read_parts
    from tenuto.compare.requirements import Requirements, unmet
    from tenuto.compare.setting import parse_setting
    from tenuto.compare.texts import read_text, shipped_texts

    required = Requirements(max_kl=max_kl, max_ppl=max_ppl, min_calls=min_calls, exact=exact)
    plan = Plan(
        texts=tuple(read_text(path) for path in text) if text else shipped_texts(),
        parts=read_parts(only),
        max_tokens=tokens,
        num_prompts=prompts,
    )
    required.check(plan)
    if plot is not None:
        check_plot(plot, plan)
    sides = []
    for setting in (parse_setting(a), parse_setting(b)):
        config = setting.config(model=model, num_threads=threads, kv_tokens=_KV_TOKENS)
        sides.append(Side(setting, config, fetch_model(config)))
    with _shown_stages() as stages:
        found = measure(sides[0], sides[1], plan, stages)
    if as_json:
        typer.echo(msgspec.json.encode(found).decode())
    else:
        show(found, Console())
    if plot is not None:
        write_plot(found, plot)
    if problems := unmet(required, found):
        for problem in problems:
            typer.echo(f"tenuto: {problem}", err=True)
        raise typer.Exit(1)
