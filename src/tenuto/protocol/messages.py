"""Messages and tools, as agents and servers speak of them."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from tenuto.ids import CallId

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call the model made: arguments parsed, so that equal calls compare equal however they were spelled."""

    id: CallId
    name: str
    arguments: dict[str, Any]


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a conversation. Absent content is the empty string, never None."""

    role: Role
    content: str = ""
    reasoning: str = ""  # assistant only: what it thought before it answered
    tool_calls: tuple[ToolCall, ...] = ()  # assistant only
    tool_call_id: CallId | None = None  # tool only: the call it answers
    name: str | None = None  # tool only: the tool's name


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as the model sees it."""

    name: str
    description: str
    parameters: dict[str, Any]  # JSON Schema of the arguments object; see COPIED
    strict: bool = False  # refuse what of the schema cannot be held; otherwise that part is relaxed, and told


COPIED = "x-tenuto-copied"
"""Schema keyword on a string: its value must be copied from what the user or a tool said in this conversation.

True: from any of it; "newest": from the newest message that holds a value which fits the schema.
"""
