"""The answers of `/v1/sessions`, field by field, and their wire forms."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from tenuto.protocol.engine import GenerateUsage, SessionStats
from tenuto.server.replies import ChoiceLogprobs
from tenuto.server.sessions.directory import Entry


class SessionSummary(BaseModel):
    id: str
    object: Literal["session"] = "session"
    created: int = Field(description="Unix seconds")
    opened_by: Literal["sessions", "chat"] = Field(description="which API it was opened by")
    parent: str | None = Field(description="the session it was forked from")
    run: str | None
    expires_in_s: float = Field(description="until it is closed, if nobody uses it")


class SessionBlocks(BaseModel):
    owned: int = Field(description="KV blocks that nobody else holds")
    shared: int = Field(description="KV blocks that other sessions hold too")


class SessionCost(BaseModel):
    computed_tokens: int = Field(description="through the model, over the session's life")
    reused_tokens: int = Field(description="held or shared, so not computed, summed over its calls")
    drafted_tokens: int = Field(description="guessed ahead")
    accepted_tokens: int = Field(description="of these, right")


class SessionTimes(BaseModel):
    """Seconds in each phase."""

    waiting: float
    running: float
    suspended: float


class SessionReply(SessionSummary):
    num_tokens: int
    num_computed_tokens: int = Field(description="of these, with KV; the others are computed when it is next used")
    blocks: SessionBlocks
    kv_bytes: int
    cost: SessionCost
    seconds: SessionTimes


class SessionList(BaseModel):
    object: Literal["list"] = "list"
    data: list[SessionSummary] = Field(description="newest first")
    has_more: bool
    first_id: str | None
    last_id: str | None = Field(description="the `after` of the next page")


class SessionTokensReply(BaseModel):
    id: str
    object: Literal["session.tokens"] = "session.tokens"
    token_ids: list[int]
    text: str = Field(description="with control tokens as a template writes them")


class SessionAppended(BaseModel):
    object: Literal["session.append"] = "session.append"
    session: str
    input_ids: list[int] = Field(description="what was added")
    num_tokens: int = Field(description="of the session, now")


class SessionDeleted(BaseModel):
    id: str
    object: Literal["session.deleted"] = "session.deleted"
    deleted: bool = True


class PromptDetails(BaseModel):
    cached_tokens: int = Field(description="not computed: held and shared together")
    held_tokens: int = Field(description="their KV was held by the session")
    shared_tokens: int = Field(description="their KV was found in the prefix cache")
    computed_tokens: int


class CompletionDetails(BaseModel):
    forced_tokens: int = Field(description="that a grammar forced")
    accepted_tokens: int = Field(description="that were guessed right")


class SessionUsage(BaseModel):
    prompt_tokens: int = Field(description="all that the session held when the first new token was chosen")
    completion_tokens: int = Field(description="generated, those that a stop string cut off among them")
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class SessionGeneration(BaseModel):
    id: str
    object: Literal["session.generation"] = "session.generation"
    session: str
    input_ids: list[int] = Field(description="what the input became")
    token_ids: list[int] = Field(description="what the session gained after them")
    text: str = Field(description="whole characters, without control tokens and the stop id")
    finish_reason: Literal["stop", "length", "grammar"]
    stop_reason: str | int | None = Field(description="the stop string or id that came")
    logprobs: ChoiceLogprobs | None = Field(None, description="if asked for")
    usage: SessionUsage


def summary(entry: Entry, expires_in_s: float) -> dict[str, Any]:
    """The wire form of `SessionSummary`."""
    return {
        "id": entry.name,
        "object": "session",
        "created": entry.created,
        "opened_by": "chat" if entry.by_chat else "sessions",
        "parent": entry.parent,
        "run": entry.hints.run,
        "expires_in_s": round(expires_in_s, 3),
    }


def with_stats(own: dict[str, Any], stats: SessionStats) -> dict[str, Any]:
    """The wire form of `SessionReply`."""
    return own | {
        "num_tokens": stats.num_tokens,
        "num_computed_tokens": stats.num_computed,
        "blocks": {"owned": stats.num_blocks_owned, "shared": stats.num_blocks_shared},
        "kv_bytes": stats.kv_bytes,
        "cost": {
            "computed_tokens": stats.total_computed_tokens,
            "reused_tokens": stats.total_reused_tokens,
            "drafted_tokens": stats.total_drafted_tokens,
            "accepted_tokens": stats.total_accepted_tokens,
        },
        "seconds": {"waiting": stats.waiting_s, "running": stats.running_s, "suspended": stats.suspended_s},
    }


def usage_of(usage: GenerateUsage) -> dict[str, Any]:
    """The wire form of `SessionUsage`."""
    return {
        "prompt_tokens": usage.num_prompt,
        "completion_tokens": usage.num_generated,
        "total_tokens": usage.num_prompt + usage.num_generated,
        "prompt_tokens_details": {
            "cached_tokens": usage.num_held + usage.num_shared,
            "held_tokens": usage.num_held,
            "shared_tokens": usage.num_shared,
            "computed_tokens": usage.num_computed,
        },
        "completion_tokens_details": {
            "forced_tokens": usage.num_forced,
            "accepted_tokens": usage.num_accepted,
        },
    }
