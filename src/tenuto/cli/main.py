"""`tenuto`: the commands, and how their failures look to a person or a script."""

from __future__ import annotations

import io
import os
import sys

import typer

import tenuto
from tenuto.cli.bench import bench
from tenuto.cli.chat import chat
from tenuto.cli.compare import compare
from tenuto.cli.demo import demo
from tenuto.cli.embed import embed
from tenuto.cli.keys import keys
from tenuto.cli.models import models
from tenuto.cli.rerank import rerank
from tenuto.cli.run import run
from tenuto.cli.serve import serve
from tenuto.errors import TenutoError

app = typer.Typer(
    name="tenuto",
    help="An inference system for agents: it holds each agent's KV cache across its tool calls.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (run, chat, demo, compare, serve, embed, rerank):
    app.command()(command)
app.add_typer(models, name="models")
app.add_typer(keys, name="keys")
app.add_typer(bench, name="bench")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tenuto {tenuto.__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None: ...


def main() -> None:
    """Exit status: 0 done, 1 the run failed, 2 wrong usage; `tenuto.entry` adds 130 for interrupted."""
    # Arithmetic threads that wait for each other sleep instead of spinning: beside another busy process a spinning
    # thread holds the core that the late one needs (docs/performance.md). Read once, when torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # A terminal that cannot show a character shows a question mark: better than an answer that ends in the middle.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    try:
        app()
    except TenutoError as error:
        typer.echo(f"tenuto: {error}", err=True)
        sys.exit(1)
    except BrokenPipeError:
        # The reader (e.g. `head`) has what it wanted. Python would complain once more when it flushes at exit.
        _give_up_output()
        sys.exit(1)
    except OSError as error:
        # What remains are full disks and closed terminals: files that commands read have errors of their own.
        _give_up_output()
        typer.echo(f"tenuto: {error.strerror or error}", err=True)
        sys.exit(1)


def _give_up_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
