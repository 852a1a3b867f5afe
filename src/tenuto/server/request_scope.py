"""Gives every request an id, and answers what nobody else caught."""

from __future__ import annotations

import asyncio
from collections.abc import Container

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tenuto.ids import IdSource
from tenuto.server.errors import STOPPING, error_response, kind_of, log_disconnect, log_if_unexpected
from tenuto.server.limits import ServerLimits
from tenuto.telemetry import RequestRecord, Telemetry

_QUIET = frozenset(("/health", "/ready", "/metrics"))  # asked again and again by machines: not worth a line each


class RequestScope:
    """ASGI middleware: `request.state.request_id`, `tenant` and `record`, the header X-Request-ID, and a 500 without a
    stack trace. Tells the telemetry of every request."""

    def __init__(
        self, app: ASGIApp, *, ids: IdSource, limits: ServerLimits, telemetry: Telemetry, paths: Container[str]
    ) -> None:
        self._app = app
        self._ids = ids
        self._limits = limits
        self._telemetry = telemetry
        self._paths = paths  # that are routes as they stand

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = self._ids.request()
        record = self._telemetry.begin(request_id, scope["method"], scope["headers"], quiet=scope["path"] in _QUIET)
        scope.setdefault("state", {}).update(request_id=request_id, tenant="", record=record)
        try:
            await self._answer(record, scope, receive, send)
        finally:
            record.tenant = scope["state"]["tenant"]
            # A request that was refused at the gate never came to its route.
            refused = scope["path"] if scope["path"] in self._paths else None
            record.route = getattr(scope.get("route"), "path_format", refused)
            self._telemetry.end(record)

    async def _answer(self, record: RequestRecord, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = record.request_id
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                record.status = message["status"]
                headers = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
                message = {**message, "headers": headers}
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:  # while its body was read
            log_disconnect(request_id)
        except asyncio.CancelledError:
            # Only the end of a drain cancels a request, and this is the request's outermost frame.
            record.error = STOPPING.code
            if started:
                raise
            await error_response(STOPPING, self._limits)(scope, receive, send_with_id)
        except Exception as error:
            record.error = kind_of(error)
            log_if_unexpected(error, request_id)
            if started:
                raise  # half an answer is out; only closing the connection tells the client that it is not whole
            await error_response(error, self._limits)(scope, receive, send_with_id)


def tenant_of(request: Request) -> str:
    """Whose request it is: what a caller names (sessions, stored responses, prefixes) is the tenant's own. Without API
    keys there is one tenant, the empty string."""
    tenant: str = getattr(request.state, "tenant", "")
    return tenant
