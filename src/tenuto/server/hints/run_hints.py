"""Whose request it is: what headers and body say, in whatever dialect, as `RunHints`."""

from __future__ import annotations

import hashlib

from starlette.requests import Request

from tenuto.ids import RunId
from tenuto.protocol.hints import RunHints
from tenuto.server.hints.session_headers import parent_of, session_of
from tenuto.server.hints.wire import AgentHintBody
from tenuto.server.request_scope import tenant_of

MAX_NAME_CHARS = 128  # of a run; a longer name is stood for by its digest


def run_hints(
    request: Request,
    *,
    agent: AgentHintBody | None = None,
    cache_salt: str | None = None,
    cache_sharing: bool | None = None,
) -> RunHints:
    """The tenant's run that a request belongs to. The body goes before the headers.

    A salt alone keeps prefixes apart, as other servers do; with sharing it only names the session.
    """
    salt = cache_salt or ""
    run, parent = session_of(request.headers), parent_of(request.headers)
    if salt and cache_sharing:
        run, parent, salt = salt, None, ""
    if agent is not None and agent.session_id:
        run, parent = agent.session_id, agent.parent_session_id
    return RunHints(
        run=_run_id(run),
        parent=_run_id(parent) if parent != run else None,
        tenant=tenant_of(request),
        salt=salt,
    )


def _run_id(name: str | None) -> RunId | None:
    if not name:
        return None
    if len(name) <= MAX_NAME_CHARS:
        return RunId(name)
    return RunId(hashlib.blake2b(name.encode("utf-8"), digest_size=16).hexdigest())
