"""What a run does next, as a value."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from tenuto.agents.events import RunFinishReason
from tenuto.protocol.chat import ToolChoice
from tenuto.protocol.messages import ToolCall


class CallModel(msgspec.Struct, frozen=True, kw_only=True, tag="call_model"):
    """Ask the model to continue the conversation."""

    turn: int  # from 1
    tool_choice: ToolChoice


class CallTools(msgspec.Struct, frozen=True, kw_only=True, tag="call_tools"):
    """Run these calls, which have no result yet, at the same time."""

    turn: int
    calls: tuple[tuple[int, ToolCall], ...]  # (place in the turn, call): call ids come from the model, and may repeat


class Finish(msgspec.Struct, frozen=True, kw_only=True, tag="finish"):
    reason: RunFinishReason
    text: str
    error_code: str | None = None
    error: str | None = None


NextStep: TypeAlias = CallModel | CallTools | Finish
