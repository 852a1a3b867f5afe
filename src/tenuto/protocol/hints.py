"""What a caller tells the scheduler about the run a request belongs to."""

from __future__ import annotations

import msgspec

from tenuto.ids import RunId


class RunHints(msgspec.Struct, frozen=True, kw_only=True):
    """Advice, never a promise: a wrong hint costs time, not correctness."""

    run: RunId | None = None
    parent: RunId | None = None  # the run that spawned this one
    priority: int = 0  # higher runs first
    deadline_s: float | None = None  # clock time by which the run wants to be finished
    tenant: str = ""  # prefixes are shared only within a tenant
    salt: str = ""  # and only between equal salts: a tenant may keep its own users apart


class ExpectedWait(msgspec.Struct, frozen=True, kw_only=True):
    """A session is about to be idle: for how long, and why."""

    seconds: float | None = None  # None: unknown
    reason: str = "tool"  # what it waits for, e.g. the tool's name
