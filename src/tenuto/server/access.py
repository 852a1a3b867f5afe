"""Who may ask what: API keys, the names this server answers to, and whether there is a place."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from tenuto.errors import ConfigError, TenutoError, Unauthorized
from tenuto.server.admission import Admission
from tenuto.server.errors import error_response, kind_of
from tenuto.server.keys import ApiKeys
from tenuto.server.limits import ServerLimits

PROBES = frozenset(("/health", "/ready"))  # asked by machines that hold no key, and never refused
OPEN = PROBES | {"/docs", "/openapi.json"}  # say nothing that is secret

_READS = frozenset(("GET", "HEAD", "OPTIONS", "DELETE"))  # cost little, or give something back


@dataclass(frozen=True)
class AccessRules:
    """Who is let in. Without keys everybody is the tenant `""`."""

    keys: ApiKeys | None = None
    # Without keys, a web page of another site must not reach a server on the same machine by giving its own name our
    # address (DNS rebinding): only names that mean this machine are answered.
    loopback_names_only: bool = False


def check_exposure(host: str, *, has_keys: bool, allow_anonymous: bool) -> bool:
    """Whether the address is a loopback one.

    Raises ConfigError if others could reach the server although there are no keys and nobody said that this is meant.
    """
    loopback = is_loopback(host)
    if not (loopback or has_keys or allow_anonymous):
        raise ConfigError(
            f"--host {host} lets other machines in, but there are no API keys: make one with `tenuto keys new`, "
            "or allow everybody with --allow-anonymous"
        )
    return loopback


def is_loopback(host: str) -> bool:
    """Whether the name or address means this very machine."""
    host = host.strip("[]").rstrip(".").lower()
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class AccessGate:
    """ASGI middleware: sets `request.state.tenant`, and refuses with 401, 403, 429 or 503 before a route runs."""

    def __init__(self, app: ASGIApp, *, rules: AccessRules, admission: Admission, limits: ServerLimits) -> None:
        self._app = app
        self._rules = rules
        self._admission = admission
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in PROBES:
            await self._app(scope, receive, send)
            return
        is_work = scope["method"] not in _READS
        try:
            tenant = self._tenant(scope)
            scope["state"]["tenant"] = tenant
            if is_work:
                self._admission.check(tenant)
        except TenutoError as error:
            await self._refuse(error, scope, receive, send)
            return
        with self._admission.working(tenant) if is_work else self._admission.opened():
            await self._app(scope, receive, send)

    def _tenant(self, scope: Scope) -> str:
        """Raises Unauthorized."""
        rules = self._rules
        if rules.loopback_names_only and not all(is_loopback(_without_port(n)) for n in _headers(scope, b"host")):
            raise Unauthorized(
                "without API keys this server answers only to the names of this machine, such as localhost; "
                "for others make a key with `tenuto keys new`"
            )
        if rules.keys is None or scope["path"] in OPEN:
            return ""
        given = list(_headers(scope, b"authorization"))
        scheme, _, key = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        if scheme.lower() != "bearer" or not key.strip():
            raise Unauthorized("no API key was given: send the header `Authorization: Bearer KEY`, once")
        tenant = rules.keys.tenant_of(key.strip())
        if tenant is None:
            raise Unauthorized("this API key is not known here; ask who runs the server for one")
        return tenant

    async def _refuse(self, error: TenutoError, scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"]["record"].error = kind_of(error)
        response = error_response(error, self._limits)
        if self._admission.is_draining:
            response.headers["Connection"] = "close"
        await response(scope, receive, send)


def _headers(scope: Scope, name: bytes) -> Iterable[str]:
    return (value.decode("latin-1") for key, value in scope["headers"] if key == name)


def _without_port(host: str) -> str:
    name, _, port = host.rpartition(":")
    return name if name and port.isdecimal() and (name[-1] == "]" or ":" not in name) else host
