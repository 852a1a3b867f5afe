"""`tenuto rerank`: documents in the order in which they answer a query."""

from __future__ import annotations

from typing import Annotated

import anyio
import typer
from rich.console import Console

from tenuto.cli import options
from tenuto.cli.fetching import fetch_model
from tenuto.cli.texts import json_line, read_texts
from tenuto.config import Config
from tenuto.protocol.embedding import Ranking, RerankerInfo, RerankRequest


def rerank(
    query: Annotated[str, typer.Argument(help="What is looked for.")],
    documents: Annotated[
        list[str] | None,
        typer.Argument(help="Documents; without any, each line of standard input is one.", show_default=False),
    ] = None,
    model: options.Model = None,
    top_n: Annotated[int | None, typer.Option(min=1, help="Only the best so many.", show_default="all")] = None,
    as_json: options.Json = False,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Cut documents that are too long for the model.")
    ] = False,
    precision: options.Precision = None,
    kv_type: options.KVType = None,
    threads: options.Threads = None,
) -> None:
    """Order documents by a cross-encoder's score, or with any other model by the similarity of embeddings."""
    if not query.strip():
        raise typer.BadParameter("the query is empty", param_hint="QUERY")
    texts = read_texts(documents, "DOCUMENTS")
    request = RerankRequest(query=query, documents=tuple(texts), top_n=top_n, truncate=truncate)
    config = options.config_from(model, precision, threads, kv_type=kv_type)
    fetch_model(config)
    info, ranking = anyio.run(_rerank, config, request)
    for place in ranking.documents:
        if as_json:
            json_line(index=place.index, score=place.score, document=texts[place.index])
        else:
            typer.echo(f"{place.score:.4f}  {' '.join(texts[place.index].split())}")
    if not as_json:
        typer.echo(f"by {info.method} of {info.model}", err=True)
    if ranking.usage.num_truncated:
        typer.echo(f"tenuto: {ranking.usage.num_truncated} documents were cut", err=True)


async def _rerank(config: Config, request: RerankRequest) -> tuple[RerankerInfo, Ranking]:
    from tenuto.wiring_embedding import open_reranker  # brings in torch: seconds that `--help` need not wait for

    with Console(stderr=True).status("loading the model ..."):
        async with open_reranker(config) as reranker:
            return await reranker.info(), await reranker.rerank(request)
