"""`tenuto models`: what can run here."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tenuto.checkpoint import find_model, open_checkpoint
from tenuto.cli import options
from tenuto.config import EMBEDDED_MODEL, Config
from tenuto.errors import ConfigError, ModelFileError


@dataclass(frozen=True)
class ModelReport:
    """One model: what it is, or why it cannot run."""

    name: str
    path: str
    runs: bool
    family: str = ""
    num_parameters: int = 0
    max_model_tokens: int = 0
    file_bytes: int = 0
    problem: str = ""


def models(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="Model files, or folders to look in.", show_default=False),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """List the models that can run: the embedded one, the configured one, and those at the given paths."""
    names = [EMBEDDED_MODEL, Config.load().model] + [str(p) for given in paths or [] for p in _candidates(given)]
    reports = [_report(name) for name in dict.fromkeys(names)]
    if as_json:
        for report in reports:
            typer.echo(json.dumps(asdict(report), ensure_ascii=False))
    else:
        _print_table(reports)
    if not all(report.runs for report in reports):
        raise typer.Exit(1)


def _candidates(given: Path) -> list[Path]:
    """A model itself, or the models directly inside a folder. Raises ConfigError if there is none."""
    if not given.is_dir() or (given / "config.json").exists():
        return [given]
    found = sorted(p for p in given.iterdir() if p.suffix == ".gguf" or (p / "config.json").exists())
    if not found:
        raise ConfigError(f"{given}: no GGUF file and no Hugging Face directory (one with a config.json) in there")
    return found


def _report(name: str) -> ModelReport:
    try:
        path = find_model(name)
        checkpoint = open_checkpoint(path)
        sizes = [checkpoint.shape(tensor) for tensor in checkpoint.tensor_names()]
    except ModelFileError as error:
        return ModelReport(name=name, path=name, runs=False, problem=str(error))
    files = [p for p in path.iterdir() if p.is_file()] if path.is_dir() else [path]
    return ModelReport(
        name=checkpoint.name,
        path=str(path),
        runs=True,
        family=checkpoint.config.family,
        num_parameters=sum(_product(shape) for shape in sizes),
        max_model_tokens=checkpoint.config.max_model_tokens,
        file_bytes=sum(p.stat().st_size for p in files),
    )


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def _print_table(reports: list[ModelReport]) -> None:
    console, table = Console(), Table()
    for name in ("model", "family", "parameters", "context", "file", "path"):
        is_number = name in ("parameters", "context", "file")
        table.add_column(name, overflow="fold", justify="right" if is_number else "left")
    for r in (r for r in reports if r.runs):
        millions, megabytes = f"{r.num_parameters / 1e6:.0f} M", f"{r.file_bytes / 1e6:.0f} MB"
        table.add_row(escape(r.name), r.family, millions, str(r.max_model_tokens), megabytes, escape(r.path))
    if table.row_count:
        console.print(table)
    for r in (r for r in reports if not r.runs):
        console.print(f"[red]does not run:[/] {escape(r.problem)}", highlight=False, soft_wrap=True)
