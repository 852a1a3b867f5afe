"""`tenuto run`: one question, answered by the agent."""

from __future__ import annotations

import sys
from typing import Annotated

import anyio
import typer
from rich.console import Console

from tenuto.agents import RunFinished, TurnFinished
from tenuto.cli import options
from tenuto.cli.assistant import assistant
from tenuto.cli.render import ShowText, show_json
from tenuto.config import Config


def run(
    question: Annotated[str, typer.Argument(help="The question; `-` reads it from standard input.")],
    model: options.Model = None,
    tools: options.Tools = None,
    as_json: options.Json = False,
    precision: options.Precision = None,
    threads: options.Threads = None,
    max_turns: Annotated[int | None, typer.Option(min=1, show_default="8", help="Most turns.")] = None,
    hold: Annotated[bool, typer.Option(help="Keep the KV between turns.")] = True,
) -> None:
    """Answer one question with the agent and its tools, streaming what it does."""
    text = sys.stdin.read() if question == "-" else question
    if not text.strip():
        raise typer.BadParameter("the question is empty", param_hint="QUESTION")
    config = options.config_from(model, precision, threads, max_turns=max_turns)
    finished = anyio.run(_answer, text.strip(), config, tools, as_json, hold)
    if finished.reason != "answer":
        raise typer.Exit(1)


async def _answer(question: str, config: Config, tools: options.Tools, as_json: bool, hold: bool) -> RunFinished:
    from tenuto.wiring import open_model  # brings in torch: seconds that `--help` need not wait for

    console = Console()
    show = show_json if as_json else ShowText(console)
    finished: RunFinished | None = None
    turns: list[TurnFinished] = []
    async with open_model(config) as client:
        async for event in assistant(client, config, tools=tools, hold=hold).run(question):
            show(event)
            if isinstance(event, TurnFinished):
                turns.append(event)
            if isinstance(event, RunFinished):
                finished = event
    assert finished is not None, "a run ends with RunFinished"
    if not as_json:
        use = finished.usage
        console.print(
            f"[dim]{use.num_turns} turns, {finished.duration_s:.1f} s; tokens: {use.num_prompt} known, "
            f"{use.num_held + use.num_shared} held, {use.num_computed} computed, {use.num_generated} generated "
            f"({use.num_forced} forced)[/]",
            highlight=False,
        )
    return finished
