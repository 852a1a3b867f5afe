"""`tenuto serve`: the OpenAI-compatible server."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Annotated

import anyio
import structlog
import typer

from tenuto.cli import options
from tenuto.cli.fetching import fetch_model
from tenuto.clock import RealClock
from tenuto.config import Config
from tenuto.ids import IdSource


def serve(
    host: Annotated[str | None, typer.Option(show_default="127.0.0.1", help="Address to listen on.")] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, show_default="8000", help="Port to listen on; 0 takes a free one."),
    ] = None,
    model: options.Model = None,
    precision: options.Precision = None,
    kv_type: options.KVType = None,
    threads: options.Threads = None,
    speculation: options.Speculation = None,
    kv_tokens: Annotated[
        int | None,
        typer.Option(min=64, show_default="16384", help="Size of the KV pool, in tokens."),
    ] = None,
) -> None:
    """Serve the model with OpenAI's API. SIGTERM or Ctrl-C lets running requests finish, a second one does not."""
    config = options.config_from(
        model, precision, threads, kv_type=kv_type, speculation=speculation, host=host, port=port, kv_tokens=kv_tokens
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.JSONRenderer(ensure_ascii=False),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    fetch_model(config)
    anyio.run(_serve, config)


async def _serve(config: Config) -> None:
    from tenuto.server import WebServer, create_app  # these bring in FastAPI: a second that `--help` need not wait for
    from tenuto.server import serve as serve_app
    from tenuto.wiring_process import serving_model

    typer.echo("loading the model ...", err=True)
    clock, ids = RealClock(), IdSource()
    async with serving_model(config, clock, ids) as started:
        info = await started.model.info()
        app = create_app(started.model, served_names=(info.name,), clock=clock, ids=ids)

        def announce(url: str) -> None:
            typer.echo(f"serving {info.name} ({info.precision} on {info.device}) at {url}/v1", err=True)

        ended = None if started.ended is None else asyncio.ensure_future(started.ended())
        await serve_app(WebServer(app, host=config.host, port=config.port), on_listening=announce, until=ended)
        if ended is not None and ended.done():
            raise ended.result()
