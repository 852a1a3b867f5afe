"""Tools that come with Tenuto: weather, calculator, clock and local search."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tenuto.clock import Clock
from tenuto.tools.builtin.calculator import calculator_tool
from tenuto.tools.builtin.clock import clock_tool
from tenuto.tools.builtin.search import search_tool
from tenuto.tools.builtin.talk_examples import TALK_EXAMPLES
from tenuto.tools.builtin.weather import HttpWeather, WeatherSource, weather_tool
from tenuto.tools.schema import Tool

__all__ = ["builtin_tools", "calculator_tool", "clock_tool", "search_tool", "weather_tool"]


def builtin_tools(clock: Clock, *, search_root: Path | None = None, weather_url: str | None = None) -> list[Tool]:
    """The built-in tools.

    Args:
        clock: today's date and time.
        search_root: directory that `search` looks through; without one there is no search tool.
        weather_url: template of a real weather service's address; without one the weather is simulated.
    """
    source: WeatherSource | None = HttpWeather(weather_url) if weather_url else None
    found = [search_tool(search_root)] if search_root is not None else []
    tools = [*found, clock_tool(clock), calculator_tool(), weather_tool(clock, source)]
    # Talk belongs to no tool; the agent shows the examples of all of them spread among each other.
    tools[0] = replace(tools[0], examples=(*TALK_EXAMPLES, *tools[0].examples))
    return tools
