"""Edits of KV: what can be done is done, and all are reported. Never an error for what is not there any more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenuto.errors import InvalidRequest, RequestError, SessionBusy, SessionNotFound
from tenuto.protocol.chat import ChatRequest
from tenuto.protocol.hints import RunHints
from tenuto.protocol.release import KeptPart, ReleaseClient
from tenuto.server.hints.wire import AgentHintBody, KVEdit
from tenuto.server.service import Service

_NO_TIER = "not done: there is no slower memory for KV yet, so it stays where it is"
_KINDS = {"evict", "offload", "prefetch"}


def edits_of(agent: AgentHintBody | None) -> tuple[KVEdit, ...]:
    """The edits, checked. Raises InvalidRequest for a range that ends before it begins."""
    management = None if agent is None else agent.context_management
    edits = tuple((management.edits if management is not None else None) or ())
    for index, edit in enumerate(edits):
        if edit.start is not None and edit.end is not None and edit.start > edit.end:
            path = f"agent_hint.context_management.edits[{index}]"
            raise InvalidRequest(f"{path}: start {edit.start} comes after end {edit.end}", path)
    return edits


async def apply_edits(
    edits: Sequence[KVEdit], asked: ChatRequest, service: Service, session: str | None
) -> dict[str, Any]:
    """What became of the edits, as `context_management` of an answer.

    Args:
        asked: the conversation whose messages and tools are meant, and whose it is; it may be empty.
        session: name of the session that holds the conversation; None: the run's name, if one of that name does.
    """
    applied, skipped = [], []
    for edit in edits:
        if edit.type == "evict" and edit.target == "session":
            await _close_held(service, asked.hints, session or asked.hints.run)
        outcome = await _apply(edit, asked, service.others.releases)
        told = edit.model_dump(exclude_none=True)
        if isinstance(outcome, int):
            applied.append(told | {"blocks_released": outcome})
        else:
            skipped.append(told | {"reason": outcome})
    return {"applied_edits": applied, "skipped_edits": skipped}


async def _close_held(service: Service, hints: RunHints, name: str | None) -> None:
    """Close a session that chat opened; one that was opened as such is its owner's to close."""
    if name is None:
        return
    try:
        entry = service.sessions.find(hints.tenant, name)
        if entry.by_chat:
            await service.sessions.close(entry)
    except (SessionNotFound, SessionBusy):
        return  # it is gone, or going: the hint is out of date


async def _apply(edit: KVEdit, asked: ChatRequest, releases: ReleaseClient | None) -> int | str:
    """How many blocks are free by an edit, or why it was not done."""
    if edit.type not in _KINDS:
        return "skipped: not a known type of edit"
    if edit.target not in ("session", "messages", "tools"):
        return "skipped: not a known target"
    if edit.type != "evict" or releases is None:
        return _NO_TIER if edit.type != "evict" else "not done: this model's KV is not held here"
    if edit.target == "session":
        return "skipped: no session is named" if asked.hints.run is None else await releases.release_run(asked.hints)
    if not asked.messages:
        return "skipped: no messages are given"
    try:
        return await releases.release_conversation(asked, _kept(edit, asked))
    except RequestError as error:  # it could not be asked for, so it was not, and has no KV
        return f"skipped: {error}"


def _kept(edit: KVEdit, asked: ChatRequest) -> KeptPart:
    """What stays: KV depends on all that comes before it, so what comes after the range goes with it."""
    start = edit.start or 0
    num_messages, num_tools = len(asked.messages), len(asked.tools)
    if edit.target == "messages":
        is_empty = edit.end is not None and edit.end <= start
        return KeptPart(num_messages=num_messages if is_empty else start)
    is_empty = edit.end is not None and edit.end <= start
    return KeptPart(num_messages=num_messages, num_tools=num_tools if is_empty else start)
