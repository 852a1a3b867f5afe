"""Tools: typed functions a model may call, and the runtime that calls them."""

from tenuto.tools.builtin import builtin_tools
from tenuto.tools.loader import load_tools
from tenuto.tools.registry import ToolRegistry
from tenuto.tools.runtime import ToolOutcome, ToolRuntime
from tenuto.tools.schema import Copied, CopiedNewest, Example, Tool, tool
from tenuto.tools.threads import WorkerThreads

__all__ = [
    "Copied",
    "CopiedNewest",
    "Example",
    "Tool",
    "ToolOutcome",
    "ToolRegistry",
    "ToolRuntime",
    "WorkerThreads",
    "builtin_tools",
    "load_tools",
    "tool",
]
