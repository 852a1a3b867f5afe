"""The agent that `run`, `chat` and `demo` use: the built-in tools, or those of a user's file."""

from __future__ import annotations

from pathlib import Path

from tenuto.agents import Agent
from tenuto.clock import Clock, RealClock
from tenuto.config import Config
from tenuto.protocol.chat import ModelClient
from tenuto.tools import Tool, load_tools
from tenuto.tools.builtin import builtin_tools, weather_tool

INSTRUCTIONS = (
    "You are a helpful assistant. Answer in the user's language. Call a tool when needed. "
    "If no city is given, ask for it."
)
MAX_REPLY_TOKENS = 256  # a small model that starts to ramble is cut here
MAX_RESULT_CHARS = 1200  # about 400 tokens: some such results fit into the embedded model's 2048


def assistant(
    model: ModelClient,
    config: Config,
    *,
    tools: Path | None = None,
    hold: bool = True,
    clock: Clock | None = None,
) -> Agent:
    """The general one. Raises ConfigError for a tools file that cannot be used.

    Args:
        tools: a Python file whose tools replace the built-in ones.
        clock: what the tools take for today; None: the system's.
    """
    if tools is not None:
        return _agent(model, config, load_tools(tools), hold)
    root = config.search_root or Path.cwd()
    return _agent(
        model, config, builtin_tools(clock or RealClock(), search_root=root, weather_url=config.weather_url), hold
    )


def weather_assistant(model: ModelClient, config: Config, *, hold: bool = True, clock: Clock | None = None) -> Agent:
    """Only the weather tool: the shortest prompt that does the demo's job."""
    return _agent(model, config, [weather_tool(clock or RealClock())], hold)


def _agent(model: ModelClient, config: Config, tools: list[Tool], hold: bool) -> Agent:
    return Agent(
        model,
        tools,
        INSTRUCTIONS,
        max_turns=config.max_turns,
        tool_deadline_s=config.tool_deadline_s,
        max_tokens=MAX_REPLY_TOKENS,
        max_result_chars=MAX_RESULT_CHARS,
        hold=hold,
    )
