"""`tenuto chat`: a conversation whose KV stays between the questions."""

from __future__ import annotations

import sys
from concurrent.futures import CancelledError
from contextlib import ExitStack, nullcontext

from anyio.from_thread import BlockingPortal, start_blocking_portal
from rich.console import Console
from rich.markup import escape

from tenuto.agents import Agent, Conversation
from tenuto.cli import options
from tenuto.cli.assistant import assistant, toolbox
from tenuto.cli.fetching import fetch_model
from tenuto.cli.render import Show, ShowText, json_lines
from tenuto.errors import TenutoError

HELP = "Ctrl-C stops an answer, /new starts over, Ctrl-D or /quit leaves."


def chat(
    model: options.Model = None,
    tools: options.Tools = None,
    as_json: options.Json = False,
    precision: options.Precision = None,
    kv_type: options.KVType = None,
    threads: options.Threads = None,
    speculation: options.Speculation = None,
    tool_format: options.ToolFormat = None,
) -> None:
    """Talk with the agent. What it has computed stays between your questions."""
    from tenuto.wiring import open_model  # brings in torch: seconds that `--help` need not wait for

    config = options.config_from(
        model, precision, threads, kv_type=kv_type, speculation=speculation, tool_format=tool_format
    )
    box = toolbox(config, tools)
    fetch_model(config)
    console = Console()
    # Reading a line blocks, so it keeps the main thread, where Ctrl-C arrives, and the model runs beside it.
    with (
        json_lines() if as_json else nullcontext(ShowText(console)) as show,
        start_blocking_portal() as portal,
        ExitStack() as stack,
    ):
        with Console(stderr=True).status("loading the model ..."):
            client = stack.enter_context(portal.wrap_async_context_manager(open_model(config)))
        if not as_json:
            console.print(f"[dim]{HELP}[/]", highlight=False)
        _talk(portal, assistant(client, config, box), console, show)


def _talk(portal: BlockingPortal, agent: Agent, console: Console, show: Show) -> None:
    conversation = Conversation(agent)

    async def reply(query: str) -> None:
        async for event in conversation.run(query):
            show(event)

    while (query := next_query(console)) is not None:
        if query == "/new":
            portal.call(conversation.close)
            conversation = Conversation(agent)
            continue
        future = portal.start_task_soon(reply, query)
        try:
            future.result()
        except KeyboardInterrupt:
            future.cancel()
            try:
                future.result()
            except CancelledError:
                console.print("\n[dim]stopped; this question is forgotten[/]")
        except TenutoError as error:
            console.print(f"[red]{escape(str(error))}[/]", highlight=False)
    portal.call(conversation.close)


def next_query(console: Console) -> str | None:
    """The next line that says something; None at the end."""
    is_terminal = sys.stdin.isatty()
    while True:
        try:
            line = input("you> " if is_terminal else "").strip()
        except EOFError:
            return None
        except KeyboardInterrupt:
            console.print(f"\n[dim]{HELP}[/]", highlight=False)
            continue
        if line in ("/quit", "/exit"):
            return None
        if line.startswith("/") and line != "/new":
            console.print(f"[dim]{HELP}[/]", highlight=False)
        elif line:
            return line
