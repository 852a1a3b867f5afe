"""Headers by which clients and gateways tell sessions apart."""

from __future__ import annotations

from collections.abc import Mapping

SESSION_HEADERS = (
    "x-session-id",
    "x-session-affinity",
    "x-conversation-id",
    "session-id",
    "session_id",
    "conversation_id",
)
"""Names that are accepted, in any case; the first that is there and not empty counts."""

PARENT_HEADER = "x-parent-session-id"


def session_of(headers: Mapping[str, str]) -> str | None:
    """The session's name; None: no header says it."""
    values = (headers.get(name, "").strip() for name in SESSION_HEADERS)
    return next((value for value in values if value), None)


def parent_of(headers: Mapping[str, str]) -> str | None:
    return headers.get(PARENT_HEADER, "").strip() or None
