"""The names that callers give to sessions, each tenant's its own."""

from __future__ import annotations

import re

from tenuto.errors import InvalidRequest
from tenuto.ids import SessionId

MAX_NAME_CHARS = 128
_NAME = re.compile(r"[A-Za-z0-9._:~@+=-]{1,128}")


def check_name(name: str, param: str = "session_id") -> str:
    """Raises InvalidRequest for what is no name."""
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"{param}: {name[:50]!r} is no session's name; take 1 to {MAX_NAME_CHARS} letters, digits and ._:~@+=-",
            param,
        )
    return name


def session_of(tenant: str, name: str) -> SessionId:
    """The engine's name of a tenant's session: no two tenants' are equal, for a checked name has no space in it."""
    return SessionId(f"{name} of tenant {tenant}" if tenant else name)
