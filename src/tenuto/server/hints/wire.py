"""What hints look like in a request's body, field by field."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from tenuto.server.wire_shape import Wire

MAX_EDITS = 64


class KVEdit(Wire):
    """One thing to do with KV."""

    type: str = Field(description="`evict`, `offload` or `prefetch`; another one is reported as skipped")
    target: str = Field("session", description="`session`, `messages` or `tools`; another one is reported as skipped")
    start: int | None = Field(
        None, ge=0, description="first of the messages or tools that are meant. Default: the first of all"
    )
    end: int | None = Field(None, ge=0, description="the one after the last that is meant. Default: all from `start`")


class ContextManagement(Wire):
    manage_request: bool | None = Field(
        None, description="true: only the edits, no answer is generated; `messages` may then be empty"
    )
    edits: list[KVEdit] | None = Field(None, max_length=MAX_EDITS, description="what to do, in this order")


class AgentHintBody(Wire):
    """openJiuwen's hint: whose request it is, and what is to become of KV."""

    session_id: str | None = Field(None, description="the agent's session, here a run")
    parent_session_id: str | None = Field(
        None, description="the session that spawned it; a root session names itself, which is the same as none"
    )
    context_management: ContextManagement | None = Field(None, description="what is to become of KV")


class HintFields(Wire):
    """The hints of a body: advice, never an error when it is out of date."""

    agent_hint: AgentHintBody | None = Field(
        None, description="extension: the agent's session, and edits of KV, as openJiuwen sends them"
    )
    cache_salt: str | None = Field(
        None, description="extension: KV is shared only between equal salts; with cache_sharing, the session's name"
    )
    cache_sharing: bool | None = Field(
        None, description="extension: true makes cache_salt a name only, as openJiuwen sends it. Default false"
    )


class ReleasedBlocks(Wire):
    """What POST /release_kv_cache did."""

    cache_salt: str | None
    block_released: int = Field(description="KV blocks that are free by it")


def manages(body: dict[str, Any]) -> bool:
    """Whether a body that was not checked yet asks for edits only."""
    hint = body.get("agent_hint")
    management = hint.get("context_management") if isinstance(hint, dict) else None
    return isinstance(management, dict) and management.get("manage_request") is True
