"""`tenuto models check`: will it run here?"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tenuto.checkpoint.find import find_local
from tenuto.cli import options
from tenuto.clock import RealClock
from tenuto.config import Config
from tenuto.errors import ModelFileError
from tenuto.hub import ModelReference, ModelStore, parse_reference, sketch_model
from tenuto.wiring_hub import model_store

if TYPE_CHECKING:
    from tenuto.field import Conditions, ModelReport


def check(
    model: Annotated[str, typer.Argument(help="A path, `embedded`, or an id on a hub, which is not fetched for it.")],
    kv_tokens: Annotated[
        int | None, typer.Option(min=64, show_default="16384", help="Size of the KV pool, in tokens.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Say in seconds whether a model will run here, and everything that keeps it from running."""
    from tenuto.field import Conditions, available_bytes  # brings in torch: seconds that `--help` need not wait for

    config = Config.load(kv_tokens=kv_tokens)
    conditions = Conditions(
        kv_tokens=config.kv_tokens,
        available_bytes=available_bytes(),
        clock=RealClock(),
        precisions=get_args(Config.model_fields["precision"].annotation),
    )
    report = _report(model, config, conditions)
    if as_json:
        typer.echo(msgspec.json.encode(report).decode())
    else:
        _print(report)
    if not report.runs:
        raise typer.Exit(1)


def _report(name: str, config: Config, conditions: Conditions) -> ModelReport:
    from tenuto.field import ModelReport, check_model

    try:
        if (path := find_local(name)) is not None:
            return check_model(path, conditions)
        if (reference := parse_reference(name)) is None:
            raise ModelFileError(f"no model at {Path(name).expanduser()}, and {name!r:.80} is no id of one on a hub")
        with model_store(config) as store:
            if (path := store.cache.find(reference)) is not None:
                return check_model(path, conditions)
            return _remote_report(reference, store, conditions)
    except ModelFileError as error:
        return ModelReport(name=name, path=name, problems=error.problems)


def _remote_report(reference: ModelReference, store: ModelStore, conditions: Conditions) -> ModelReport:
    from tenuto.field import check_model

    with tempfile.TemporaryDirectory(prefix="tenuto-check-") as folder:
        drawn = sketch_model(store, reference, Path(folder))
        report = check_model(drawn.path, conditions)
    return msgspec.structs.replace(
        report, path=str(reference), file_bytes=drawn.num_bytes, download_bytes=drawn.num_bytes
    )


def _print(report: ModelReport) -> None:
    console = Console()
    facts = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    facts.add_column(no_wrap=True)
    facts.add_column(overflow="fold")
    for name, value in _facts(report):
        facts.add_row(name, escape(value))
    console.print(f"[bold]{escape(report.name)}[/]", highlight=False, soft_wrap=True)
    console.print(facts, highlight=False)
    if report.precisions:
        console.print(_memory(report), highlight=False)
    for note in report.notes:
        console.print(f"[yellow]note:[/] {escape(note)}", highlight=False, soft_wrap=True)
    for problem in report.problems:
        console.print(f"[red]problem:[/] {escape(problem)}", highlight=False, soft_wrap=True)
    console.print("[green]runs[/]" if report.runs else "[red]does not run[/]", highlight=False)


def _facts(report: ModelReport) -> list[tuple[str, str]]:
    stored = ", ".join(f"{t.name} {_size(t.num_bytes)} ({t.num_tensors})" for t in report.tensor_types)
    lines = [
        ("path", report.path),
        ("for", report.use if report.family else ""),
        ("family", report.family),
        ("format", f"{report.format}, {_size(report.file_bytes)}" if report.format else ""),
        ("tensors", stored),
        ("parameters", f"{report.num_parameters / 1e6:.1f} M" if report.num_parameters else ""),
        ("context", f"{report.max_model_tokens} tokens" if report.max_model_tokens else ""),
        ("tokenizer", report.tokenizer),
        ("chat template", report.chat_template),
        ("to fetch", _size(report.download_bytes) if report.download_bytes else ""),
    ]
    return [(name, value) for name, value in lines if value]


def _memory(report: ModelReport) -> Table:
    free = "not known" if report.available_bytes is None else _size(report.available_bytes)
    table = Table(caption=f"KV of {report.kv_tokens} tokens; free memory: {free}", caption_justify="left")
    for name in ("precision", "weights", "KV a token", "KV", "together", "fits"):
        table.add_column(name, justify="left" if name in ("precision", "fits") else "right")
    for fit in report.precisions:
        fits = {True: "yes", False: "no", None: "?"}[fit.fits]
        sizes = (fit.weight_bytes, fit.kv_bytes_per_token, fit.kv_bytes, fit.total_bytes)
        table.add_row(fit.name, *map(_size, sizes), fits)
    return table


def _size(num_bytes: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= size:
            return f"{num_bytes / size:.2f} {unit}"
    return f"{num_bytes} B"
