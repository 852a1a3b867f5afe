"""`tenuto demo`: what holding the KV is worth, on this machine."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import anyio
import typer
from rich.console import Console

from tenuto.cli import options
from tenuto.cli.fetching import fetch_model


def demo(
    model: options.Model = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print only the numbers, as one JSON object.")] = False,
    precision: options.Precision = None,
    kv_type: options.KVType = None,
    threads: options.Threads = None,
    speculation: options.Speculation = None,
    tool_format: options.ToolFormat = None,
) -> None:
    """Run the weather agent with its KV held across tool calls and without, then eight agents at once."""
    from tenuto.cli.demonstration import demonstrate  # brings in torch: seconds that `--help` need not wait for

    config = options.config_from(
        model, precision, threads, kv_type=kv_type, speculation=speculation, tool_format=tool_format
    )
    fetch_model(config)
    summary = anyio.run(demonstrate, config, Console(quiet=as_json))
    if as_json:
        typer.echo(json.dumps(asdict(summary), ensure_ascii=False))
