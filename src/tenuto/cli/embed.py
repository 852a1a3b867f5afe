"""`tenuto embed`: texts to vectors, or to the table of their similarities."""

from __future__ import annotations

from typing import Annotated, Literal

import anyio
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tenuto.cli import options
from tenuto.cli.fetching import fetch_model
from tenuto.cli.texts import cut, json_line, read_texts
from tenuto.config import Config
from tenuto.protocol.embedding import Embeddings, EmbedRequest

_SHOWN_NUMBERS = 6


def embed(
    texts: Annotated[
        list[str] | None,
        typer.Argument(help="Texts; without any, each line of standard input is one.", show_default=False),
    ] = None,
    model: options.Model = None,
    similarity: Annotated[
        bool, typer.Option("--similarity", help="Show how similar the texts are (cosine), not the vectors.")
    ] = False,
    as_json: options.Json = False,
    pooling: Annotated[
        Literal["first", "last", "mean"] | None,
        typer.Option(help="Which hidden states make the vector.", show_default="the model's own"),
    ] = None,
    normalise: Annotated[
        bool | None,
        typer.Option("--normalise/--no-normalise", help="Vectors of length 1.", show_default="the model's own"),
    ] = None,
    dimensions: Annotated[
        int | None, typer.Option(min=1, help="Keep the first N numbers (Matryoshka models).", show_default="all")
    ] = None,
    prompt: Annotated[str | None, typer.Option(help="One of the model's prompts, by name, e.g. `query`.")] = None,
    instruction: Annotated[str | None, typer.Option(help="Text to write before each text.")] = None,
    truncate: Annotated[bool, typer.Option("--truncate", help="Cut texts that are too long for the model.")] = False,
    precision: options.Precision = None,
    kv_type: options.KVType = None,
    threads: options.Threads = None,
) -> None:
    """Turn texts into vectors with an encoder (BERT, XLM-RoBERTa) or with the hidden states of any model."""
    inputs = read_texts(texts)
    request = EmbedRequest(
        inputs=tuple(inputs),
        pooling=pooling,
        normalise=True if similarity else normalise,
        dimensions=dimensions,
        prompt=prompt,
        instruction=instruction,
        truncate=truncate,
    )
    config = options.config_from(model, precision, threads, kv_type=kv_type)
    fetch_model(config)
    result = anyio.run(_embed, config, request)
    if similarity:
        _show_similarity(inputs, result, as_json)
    else:
        _show_vectors(inputs, result, as_json)
    _note_truncated(result.usage.num_truncated)


async def _embed(config: Config, request: EmbedRequest) -> Embeddings:
    from tenuto.wiring_embedding import open_embedder  # brings in torch: seconds that `--help` need not wait for

    with Console(stderr=True).status("loading the model ..."):
        async with open_embedder(config) as embedder:
            return await embedder.embed(request)


def _show_vectors(texts: list[str], result: Embeddings, as_json: bool) -> None:
    for index, (text, vector) in enumerate(zip(texts, result.vectors.tolist(), strict=True)):
        if as_json:
            json_line(index=index, text=text, embedding=vector)
            continue
        shown = " ".join(f"{number:.4f}" for number in vector[:_SHOWN_NUMBERS])
        typer.echo(f"{cut(text)}: {shown} ... ({len(vector)} numbers)")


def _show_similarity(texts: list[str], result: Embeddings, as_json: bool) -> None:
    table = Table("", *(str(index) for index in range(len(texts))))
    for index, row in enumerate((result.vectors @ result.vectors.T).tolist()):
        if as_json:
            json_line(index=index, text=texts[index], similarity=row)
        else:
            table.add_row(escape(f"{index} {cut(texts[index])}"), *(f"{value:.2f}" for value in row))
    if not as_json:
        Console().print(table)


def _note_truncated(num_truncated: int) -> None:
    if num_truncated:
        typer.echo(f"tenuto: {num_truncated} texts were cut", err=True)
