"""The agent that `run`, `chat` and `demo` use: the built-in tools, or those of a user's file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tenuto.agents import Agent
from tenuto.clock import Clock, RealClock
from tenuto.config import Config
from tenuto.protocol.chat import ModelClient
from tenuto.tools import Tool, load_tools
from tenuto.tools.builtin import builtin_tools, weather_tool

INSTRUCTIONS = "You are a helpful assistant. Answer in the user's language. Call a tool when needed."
ASK_FOR_CITY = " If no city is given, ask for it."  # with the weather tool
MAX_REPLY_TOKENS = 256  # a small model that starts to ramble is cut here
MAX_RESULT_CHARS = 1200  # about 400 tokens: a small model loses its way in more


@dataclass(frozen=True)
class Toolbox:
    """Tools, and the instructions that go with them. Made before the model is loaded: a faulty file costs no wait."""

    tools: list[Tool]
    instructions: str


def toolbox(config: Config, file: Path | None = None, clock: Clock | None = None) -> Toolbox:
    """The built-in tools, or those of a Python file instead. Raises ConfigError for a file that cannot be used.

    Args:
        clock: what the built-in tools take for today; None: the system's.
    """
    if file is not None:
        return Toolbox(load_tools(file), INSTRUCTIONS)
    root = config.search_root or Path.cwd()
    tools = builtin_tools(clock or RealClock(), search_root=root, weather_url=config.weather_url)
    return Toolbox(tools, INSTRUCTIONS + ASK_FOR_CITY)


def weather_toolbox(clock: Clock | None = None) -> Toolbox:
    """Only the weather tool: the shortest prompt that does the demo's job."""
    return Toolbox([weather_tool(clock or RealClock())], INSTRUCTIONS + ASK_FOR_CITY)


def assistant(model: ModelClient, config: Config, box: Toolbox, *, hold: bool = True) -> Agent:
    return Agent(
        model,
        box.tools,
        box.instructions,
        max_turns=config.max_turns,
        tool_deadline_s=config.tool_deadline_s,
        max_tokens=MAX_REPLY_TOKENS,
        max_result_chars=MAX_RESULT_CHARS,
        hold=hold,
    )
