"""`tenuto models download`, `remove` and `list --cache`."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tenuto.cli import options
from tenuto.cli.fetching import shown_progress
from tenuto.config import Config
from tenuto.hub import ModelReference, parse_reference
from tenuto.wiring_hub import model_store, packed_folder

Id = Annotated[str, typer.Argument(help="hf:org/name, ms:org/name, org/name:Q4_K_M, ...; @revision may follow.")]


def reference_of(text: str) -> ModelReference:
    """Raises typer.BadParameter for what is no id."""
    reference = parse_reference(text)
    if reference is None:
        raise typer.BadParameter(f"{text!r} is no id of a model on a hub, such as hf:org/name or ms:org/name")
    return reference


def download(model: Id, as_json: options.Json = False) -> None:
    """Fetch a model into the cache, or what is new of it. What broke off goes on where it stopped."""
    reference = reference_of(model)
    with model_store(Config.load()) as store, shown_progress() as progress:
        path = store.fetch(reference, progress, refresh=not store.offline)
    if as_json:
        typer.echo(msgspec.json.encode({"id": str(reference), "path": str(path)}).decode())
    else:
        Console().print(str(path), highlight=False, markup=False, soft_wrap=True)


def remove(model: Id) -> None:
    """Delete a model from the cache: one file of it if the id names one, else everything of the repository."""
    reference = reference_of(model)
    with model_store(Config.load()) as store, shown_progress() as progress, store.cache.lock(reference, progress):
        freed = store.cache.remove(reference)
    Console().print(f"removed {reference}: {freed / 1e6:.1f} MB", highlight=False, markup=False, soft_wrap=True)


def list_cache(as_json: bool) -> None:
    """Print what lies in the cache, whole or not, and how much is prepared of it and of other models."""
    config = Config.load()
    with model_store(config) as store:
        cached = store.cache.models()
        root = store.cache.root
    if as_json:
        for model in cached:
            typer.echo(msgspec.json.encode(model).decode())
        return
    console, table = Console(), Table()
    for name in ("id", "size", "commit", "path"):
        table.add_column(name, overflow="fold", justify="right" if name == "size" else "left")
    for m in cached:
        size = f"{m.num_bytes / 1e6:.0f} MB" + ("" if m.whole else ", not whole")
        table.add_row(escape(m.id), size, m.commit[:12], escape(m.path))
    if table.row_count:
        console.print(table)
    else:
        console.print(f"no models in {root}", highlight=False, markup=False, soft_wrap=True)
    if (folder := packed_folder(config)) is not None and (packed := list(folder.glob("*.packed"))):
        megabytes = sum(path.lstat().st_size for path in packed) / 1e6
        said = f"prepared weights: {len(packed)} files, {megabytes:.1f} MB in {folder}; see `tenuto models packed`"
        console.print(said, highlight=False, markup=False, soft_wrap=True)
