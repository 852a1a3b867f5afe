"""`tenuto models`: what can run here, what would, and what lies in the cache."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typer.core import TyperGroup

from tenuto.checkpoint import find_model, open_checkpoint
from tenuto.checkpoint.encoders import is_encoder, open_encoder
from tenuto.cli import options
from tenuto.cli.models_cache import download, list_cache, remove
from tenuto.cli.models_check import check
from tenuto.cli.models_packed import packed
from tenuto.config import EMBEDDED_MODEL, Config
from tenuto.errors import ConfigError, ModelFileError
from tenuto.hub import parse_reference
from tenuto.wiring_hub import model_store


class _ListByDefault(TyperGroup):
    """`tenuto models [PATHS]` is short for `tenuto models list [PATHS]`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed


models = typer.Typer(cls=_ListByDefault, help="List, check, fetch and remove models.", pretty_exceptions_enable=False)
models.command("check")(check)
models.command("download")(download)
models.command("remove")(remove)
models.command("packed")(packed)


@dataclass(frozen=True)
class ListedModel:
    """One model: what it is, or why it cannot run."""

    name: str
    path: str
    runs: bool
    family: str = ""
    num_parameters: int = 0
    max_model_tokens: int = 0
    file_bytes: int = 0
    problem: str = ""


@models.command("list")
def list_models(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(help="Model files, or folders to look in.", show_default=False),
    ] = None,
    cache: Annotated[bool, typer.Option("--cache", help="What lies in the cache of models from hubs instead.")] = False,
    as_json: options.Json = False,
) -> None:
    """List the models that can run: the embedded one, the configured one, and those at the given paths."""
    if cache:
        if paths:
            raise typer.BadParameter("--cache lists the cache, not paths")
        list_cache(as_json)
        return
    config = Config.load()
    names, unusable = [EMBEDDED_MODEL, config.model], []
    for given in paths or []:
        try:
            names += map(str, _candidates(given))
        except ConfigError as error:  # keeps no other path from being listed
            unusable.append(ListedModel(name=str(given), path=str(given), runs=False, problem=str(error)))
    listed = [_listed(name, config) for name in dict.fromkeys(names)] + unusable
    if as_json:
        for model in listed:
            typer.echo(json.dumps(asdict(model), ensure_ascii=False))
    else:
        _print_table(listed)
    if not all(model.runs for model in listed):
        raise typer.Exit(1)


def _candidates(given: Path) -> list[Path]:
    """A model itself, or the models directly inside a folder. Raises ConfigError if there is none."""
    if not given.is_dir() or (given / "config.json").exists():
        return [given]
    try:
        found = sorted(p for p in given.iterdir() if p.suffix == ".gguf" or (p / "config.json").exists())
    except OSError as error:
        raise ConfigError(f"{given}: {error.strerror}") from error
    if not found:
        raise ConfigError(f"{given}: no GGUF file and no Hugging Face directory (one with a config.json) in there")
    return found


def _listed(name: str, config: Config) -> ListedModel:
    try:
        path = _in_cache(name, config) or find_model(name)
        checkpoint = open_encoder(path) if is_encoder(path) else open_checkpoint(path)
        sizes = [checkpoint.shape(tensor) for tensor in checkpoint.tensor_names()]
    except ModelFileError as error:
        return ListedModel(name=name, path=name, runs=False, problem=str(error))
    files = [p for p in path.iterdir() if p.is_file()] if path.is_dir() else [path]
    return ListedModel(
        name=checkpoint.name,
        path=str(path),
        runs=True,
        family=checkpoint.config.family,
        num_parameters=sum(_product(shape) for shape in sizes),
        max_model_tokens=checkpoint.config.max_model_tokens,
        file_bytes=sum(p.stat().st_size for p in files),
    )


def _in_cache(name: str, config: Config) -> Path | None:
    """A model given by id, if it is here: listing fetches nothing."""
    reference = parse_reference(name)
    if reference is None or Path(name).expanduser().exists():
        return None
    with model_store(config) as store:
        path = store.cache.find(reference)
        if path is None:
            raise ModelFileError(f"{store.cache.lacks(reference)}: `tenuto models download {reference}` fetches it")
    return path


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def _print_table(listed: list[ListedModel]) -> None:
    console, table = Console(), Table()
    for name in ("model", "family", "parameters", "context", "file", "path"):
        is_number = name in ("parameters", "context", "file")
        table.add_column(name, overflow="fold", justify="right" if is_number else "left")
    for m in (m for m in listed if m.runs):
        millions, megabytes = f"{m.num_parameters / 1e6:.0f} M", f"{m.file_bytes / 1e6:.0f} MB"
        table.add_row(escape(m.name), m.family, millions, str(m.max_model_tokens), megabytes, escape(m.path))
    if table.row_count:
        console.print(table)
    for m in (m for m in listed if not m.runs):
        console.print(f"[red]does not run:[/] {escape(m.problem)}", highlight=False, soft_wrap=True)
