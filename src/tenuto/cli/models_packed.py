"""`tenuto models packed`: the weights that earlier starts have prepared."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tenuto.cli import options
from tenuto.config import Config
from tenuto.errors import ConfigError


def packed(
    clear: Annotated[
        bool, typer.Option("--clear", help="Delete all of them; they are made again when needed.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """List the weights that earlier starts have prepared, so that the next one need not."""
    from tenuto.wiring_packed import packed_cache  # brings in torch: seconds that `--help` need not wait for

    cache = packed_cache(Config.load())
    if cache is None:
        raise ConfigError("there is no cache of prepared weights: setting packed_cache (TENUTO_PACKED_CACHE) is off")
    console = Console()
    if clear:
        freed = cache.clear()
        if as_json:
            typer.echo(msgspec.json.encode({"path": str(cache.root), "freed_bytes": freed}).decode())
        else:
            said = f"removed {freed / 1e6:.1f} MB from {cache.root}"
            console.print(said, highlight=False, markup=False, soft_wrap=True)
        return
    kept = cache.list()
    if as_json:
        for one in kept:
            typer.echo(msgspec.json.encode(one).decode())
        return
    table, together = Table(), sum(one.num_bytes for one in kept)
    for name in ("model", "size", "last used"):
        table.add_column(name, overflow="fold", justify="right" if name == "size" else "left")
    for one in kept:
        used = datetime.fromtimestamp(one.used).astimezone().strftime("%Y-%m-%d %H:%M")
        table.add_row(escape(one.model), f"{one.num_bytes / 1e6:.1f} MB", used)
    if kept:
        console.print(table)
    said = f"{together / 1e6:.1f} MB in {cache.root}" if kept else f"no prepared weights in {cache.root}"
    console.print(said, highlight=False, markup=False, soft_wrap=True)
