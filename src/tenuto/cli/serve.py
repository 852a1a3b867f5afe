"""`tenuto serve`: the OpenAI-compatible server."""

from __future__ import annotations

import asyncio
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import anyio
import typer

from tenuto.cli import options
from tenuto.cli.fetching import fetch_model
from tenuto.clock import RealClock
from tenuto.config import Config
from tenuto.event_loop import loop_options
from tenuto.ids import IdSource

if TYPE_CHECKING:
    from ssl import SSLContext

    from tenuto.server import BoundAddress
    from tenuto.server.access import AccessRules

_AllowAnonymous = Annotated[
    bool | None, typer.Option("--allow-anonymous", help="Without API keys, let other machines in too.")
]
_EmbeddingModel = Annotated[
    str | None, typer.Option(help="Model of /v1/embeddings, like --model.", show_default="the generating model")
]
_RerankModel = Annotated[
    str | None, typer.Option(help="Model of /v1/rerank, like --model.", show_default="similarity of embeddings")
]
_TlsCert = Annotated[Path | None, typer.Option(help="Certificate, PEM; with --tls-key, serves HTTPS.")]
_MaxRequests = Annotated[
    int | None, typer.Option(min=1, show_default="256", help="Requests answered at once; one more is refused (429).")
]
_DrainS = Annotated[
    float | None, typer.Option(min=0, show_default="30", help="Seconds that running requests have after SIGTERM.")
]


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
    tool_format: options.ToolFormat = None,
    embedding_model: _EmbeddingModel = None,
    rerank_model: _RerankModel = None,
    kv_tokens: Annotated[
        int | None,
        typer.Option(min=64, show_default="16384", help="Size of the KV pool, in tokens."),
    ] = None,
    api_keys_file: Annotated[Path | None, typer.Option("--api-keys", help="Key file of `tenuto keys`.")] = None,
    allow_anonymous: _AllowAnonymous = None,
    tls_cert: _TlsCert = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key, PEM.")] = None,
    max_requests: _MaxRequests = None,
    drain_s: _DrainS = None,
    log_format: Annotated[str | None, typer.Option(help="text or json.", show_default="text")] = None,
    trace_content: Annotated[
        bool | None, typer.Option("--trace-content", help="Write prompts and replies into the traces.")
    ] = None,
) -> None:
    """Serve the model with OpenAI's API. SIGTERM or Ctrl-C lets running requests finish, a second one does not."""
    config = options.config_from(
        model,
        precision,
        threads,
        kv_type=kv_type,
        speculation=speculation,
        tool_format=tool_format,
        embedding_model=embedding_model,
        rerank_model=rerank_model,
        host=host,
        port=port,
        kv_tokens=kv_tokens,
        api_keys_file=api_keys_file,
        allow_anonymous=allow_anonymous,
        tls_cert=tls_cert,
        tls_key=tls_key,
        max_requests=max_requests,
        drain_s=drain_s,
        log_format=log_format,
        trace_content=trace_content,
    )
    start(config)


def start(config: Config) -> None:
    """Serve until a signal. Raises ConfigError before the model is loaded if it cannot be served like that."""
    # These bring in FastAPI: a second that `--help` need not wait for.
    from tenuto.cli.serving import allow_connections, rules_of, secrets_of
    from tenuto.server import BoundAddress
    from tenuto.server.tls import load_tls
    from tenuto.telemetry import configure_logs

    configure_logs(sys.stderr, config.log_format, secrets=secrets_of(config))
    rules = rules_of(config, RealClock())
    tls = load_tls(config.tls_cert, config.tls_key)
    allow_connections(config.max_connections)
    with closing(BoundAddress(config.host, config.port)) as address:
        for other in (None, config.embedding_model, config.rerank_model):
            fetch_model(config if other is None else config.model_copy(update={"model": other}))
        anyio.run(_serve, config, address, rules, tls, backend_options=loop_options())


async def _serve(config: Config, address: BoundAddress, rules: AccessRules, tls: SSLContext | None) -> None:
    from tenuto.cli.serving import limits_of, operations_of, telemetry_of
    from tenuto.server import OtherClients, WebServer, create_app
    from tenuto.server import serve as serve_app
    from tenuto.wiring_process import serving_model
    from tenuto.wiring_vectors import vector_clients

    typer.echo("loading the model ...", err=True)
    clock, ids = RealClock(), IdSource()
    async with (
        telemetry_of(config, clock) as telemetry,
        serving_model(config, clock, ids, telemetry.broken_off) as started,
        vector_clients(config, started, clock) as vectors,
    ):
        info = await started.model.info()
        app = create_app(
            started.model,
            served_names=(info.name,),
            clock=clock,
            ids=ids,
            others=OtherClients(
                engine=started.engine,
                completion=started.completion,
                embedder=vectors.embedder,
                reranker=vectors.reranker,
                sessions=started.sessions,
                releases=started.model.releases,
            ),
            operations=operations_of(config, rules, telemetry, info),
        )
        server = WebServer(
            app,
            address,
            drain_deadline_s=config.drain_s,
            tls=tls,
            limits=limits_of(config),
        )

        def announce(url: str) -> None:
            typer.echo(f"serving {info.name} ({info.precision} on {info.device}) at {url}/v1", err=True)

        ended = None if started.ended is None else asyncio.ensure_future(started.ended())
        await serve_app(server, on_listening=announce, until=ended)
        if ended is not None and ended.done():
            raise ended.result()
