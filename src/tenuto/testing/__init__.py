"""Public fakes for tests of agents, servers and engines. Production code never imports this room.

Each name is imported when it is first asked for, so that a test of agents does not load the engine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenuto.testing.fake_executor import FakeExecutor, expected_next
    from tenuto.testing.scripted_engine import ScriptedEngine
    from tenuto.testing.scripted_model import Reply, ScriptedModel, call
    from tenuto.testing.scripted_tools import ScriptedTools
    from tenuto.testing.world import World, WorldSummary
    from tenuto.testing.world_config import WorldConfig
    from tenuto.testing.world_history import Violation

__all__ = [
    "FakeExecutor",
    "Reply",
    "ScriptedEngine",
    "ScriptedModel",
    "ScriptedTools",
    "Violation",
    "World",
    "WorldConfig",
    "WorldSummary",
    "call",
    "expected_next",
]

_HOMES = {
    "FakeExecutor": "fake_executor",
    "Reply": "scripted_model",
    "ScriptedEngine": "scripted_engine",
    "ScriptedModel": "scripted_model",
    "ScriptedTools": "scripted_tools",
    "Violation": "world_history",
    "World": "world",
    "WorldConfig": "world_config",
    "WorldSummary": "world",
    "call": "scripted_model",
    "expected_next": "fake_executor",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
