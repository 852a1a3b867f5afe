"""The agent that `run`, `chat` and `demo` use: the built-in tools, or those of a user's file."""

from __future__ import annotations

from pathlib import Path

from tenuto.agents import Agent
from tenuto.clock import RealClock
from tenuto.config import Config
from tenuto.protocol.chat import ModelClient
from tenuto.tools import Tool, load_tools
from tenuto.tools.builtin import builtin_tools, weather_tool

INSTRUCTIONS = "You are a helpful assistant."
MAX_REPLY_TOKENS = 256  # a small model that starts to ramble is cut here


def assistant(model: ModelClient, config: Config, *, tools: Path | None = None, hold: bool = True) -> Agent:
    """The general one. Raises ConfigError for a tools file that cannot be used."""
    if tools is not None:
        return _agent(model, config, load_tools(tools), hold)
    builtin = builtin_tools(RealClock(), search_root=config.search_root or Path.cwd(), weather_url=config.weather_url)
    return _agent(model, config, builtin, hold)


def weather_assistant(model: ModelClient, config: Config, *, hold: bool = True) -> Agent:
    """Only the weather tool: the shortest prompt that does the demo's job."""
    return _agent(model, config, [weather_tool(RealClock())], hold)


def _agent(model: ModelClient, config: Config, tools: list[Tool], hold: bool) -> Agent:
    return Agent(
        model,
        tools,
        INSTRUCTIONS,
        max_turns=config.max_turns,
        tool_deadline_s=config.tool_deadline_s,
        max_tokens=MAX_REPLY_TOKENS,
        hold=hold,
    )
