"""Gives every request an id, and answers what nobody else caught."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tenuto.ids import IdSource
from tenuto.server.errors import STOPPING, error_response, log_disconnect, log_if_unexpected
from tenuto.server.limits import ServerLimits


class RequestScope:
    """ASGI middleware: `request.state.request_id`, the header X-Request-ID, and a 500 without a stack trace."""

    def __init__(self, app: ASGIApp, *, ids: IdSource, limits: ServerLimits) -> None:
        self._app = app
        self._ids = ids
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = self._ids.request()
        scope.setdefault("state", {})["request_id"] = request_id
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
                message = {**message, "headers": headers}
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:  # while its body was read
            log_disconnect(request_id)
        except asyncio.CancelledError:
            # Only the end of a drain cancels a request, and this is the request's outermost frame.
            if started:
                raise
            await error_response(STOPPING, self._limits)(scope, receive, send_with_id)
        except Exception as error:
            log_if_unexpected(error, request_id)
            if started:
                raise  # half an answer is out; only closing the connection tells the client that it is not whole
            await error_response(error, self._limits)(scope, receive, send_with_id)


def tenant_of(request: Request) -> str:
    """Whose request it is: what a caller names (sessions, stored responses, prefixes) is the tenant's own. Without API
    keys there is one tenant, the empty string."""
    tenant: str = getattr(request.state, "tenant", "")
    return tenant
