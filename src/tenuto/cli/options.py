"""Options that several commands share, each written once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tenuto.config import Config

Model = Annotated[
    str | None,
    typer.Option(
        help="A GGUF file, a Hugging Face directory, an id such as hf:org/name, or `embedded`.", show_default="embedded"
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(help="fp32, bf16, int8 or int4.", show_default="fp32"),
]
KVType = Annotated[
    str | None,
    typer.Option(help="float (as the precision says) or int8, with precision int8 or int4.", show_default="float"),
]
Threads = Annotated[
    int | None,
    typer.Option(min=1, help="Threads for arithmetic.", show_default="one a core"),
]
Speculation = Annotated[
    str | None,
    typer.Option(help="suffix (guess repeated text ahead) or off; same output.", show_default="suffix"),
]
ToolFormat = Annotated[
    str | None,
    typer.Option(help="How the model writes tool calls, by name; auto recognises it.", show_default="auto"),
]
Tools = Annotated[
    Path | None,
    typer.Option(help="A Python file with @tool functions, instead of the built-in tools. The file is run."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line, in UTF-8.")]


def config_from(model: str | None, precision: str | None, threads: int | None, **more: object) -> Config:
    """Settings from the environment, with what the command line says on top."""
    return Config.load(model=model, precision=precision, num_threads=threads, **more)
