"""Agents: the loop of model and tools, as pure decisions over a journal."""

from tenuto.agents.agent import Agent, RunResult
from tenuto.agents.conversation import Conversation
from tenuto.agents.events import (
    AgentEvent,
    Reasoning,
    RunFinished,
    RunFinishReason,
    RunStarted,
    RunUsage,
    Text,
    ToolAnswered,
    ToolCalled,
    TurnFinished,
    TurnStarted,
)

__all__ = [
    "Agent",
    "AgentEvent",
    "Conversation",
    "Reasoning",
    "RunFinishReason",
    "RunFinished",
    "RunResult",
    "RunStarted",
    "RunUsage",
    "Text",
    "ToolAnswered",
    "ToolCalled",
    "TurnFinished",
    "TurnStarted",
]
