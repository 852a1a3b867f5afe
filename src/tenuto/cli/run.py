"""`tenuto run`: one question, answered by the agent."""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack, nullcontext
from typing import Annotated

import anyio
import typer
from rich.console import Console

from tenuto.agents import RunFinished
from tenuto.cli import options
from tenuto.cli.assistant import Toolbox, assistant, toolbox
from tenuto.cli.fetching import fetch_model
from tenuto.cli.render import Show, ShowText, json_lines
from tenuto.config import Config

_FEWER_TOOLS = (
    "The built-in tools and their examples take over a thousand tokens: --tools with a few of your own takes less."
)


def run(
    question: Annotated[str, typer.Argument(help="The question; `-` reads it from standard input.")],
    model: options.Model = None,
    tools: options.Tools = None,
    as_json: options.Json = False,
    precision: options.Precision = None,
    kv_type: options.KVType = None,
    threads: options.Threads = None,
    speculation: options.Speculation = None,
    tool_format: options.ToolFormat = None,
    max_turns: Annotated[int | None, typer.Option(min=1, show_default="8", help="Most turns.")] = None,
    hold: Annotated[bool, typer.Option(help="Keep the KV between turns.")] = True,
) -> None:
    """Answer one question with the agent and its tools, streaming what it does."""
    text = sys.stdin.read() if question == "-" else question
    if not text.strip():
        raise typer.BadParameter("the question is empty", param_hint="QUESTION")
    config = options.config_from(
        model,
        precision,
        threads,
        kv_type=kv_type,
        max_turns=max_turns,
        speculation=speculation,
        tool_format=tool_format,
    )
    box = toolbox(config, tools)
    fetch_model(config)
    with json_lines() if as_json else nullcontext(ShowText(Console())) as show:
        finished = anyio.run(_answer, text.strip(), config, box, hold, show)
    if not as_json:
        _print_usage(finished)
        if finished.error_code == "context_length_error" and tools is None:
            Console(stderr=True).print(_FEWER_TOOLS, highlight=False, markup=False, soft_wrap=True)
    if finished.reason != "answer":
        raise typer.Exit(1)


async def _answer(question: str, config: Config, box: Toolbox, hold: bool, show: Show) -> RunFinished:
    from tenuto.wiring import open_model  # brings in torch: seconds that `--help` need not wait for

    async with AsyncExitStack() as stack:
        with Console(stderr=True).status("loading the model ..."):
            client = await stack.enter_async_context(open_model(config))
        async for event in assistant(client, config, box, hold=hold).run(question):
            show(event)
    assert isinstance(event, RunFinished), "a run ends with RunFinished"
    return event


def _print_usage(finished: RunFinished) -> None:
    use = finished.usage
    turns = "1 turn" if use.num_turns == 1 else f"{use.num_turns} turns"
    Console().print(
        f"[dim]{turns}, {finished.duration_s:.1f} s; tokens: {use.num_prompt} known, "
        f"{use.num_held + use.num_shared} held, {use.num_computed} computed, {use.num_generated} generated "
        f"({use.num_forced} forced)[/]",
        highlight=False,
        soft_wrap=True,
    )
