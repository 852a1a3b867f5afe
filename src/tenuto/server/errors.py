"""Typed errors as OpenAI's error shape and status codes. Nothing leaves as a stack trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tenuto.errors import (
    Cancelled,
    CapacityError,
    ContextLengthError,
    EngineClosed,
    InvalidRequest,
    NeverFits,
    NotStored,
    QueueFull,
    RequestError,
    SessionBusy,
    SessionExists,
    SessionNotFound,
    TenutoError,
    Unauthorized,
    UnknownModel,
)
from tenuto.server.limits import ServerLimits

_log = structlog.get_logger("tenuto.server")

# First match wins. OpenAI's own code where clients look for one, else None: the error's class as its code.
_KINDS: tuple[tuple[type[TenutoError], int, str, str | None], ...] = (
    (Unauthorized, 401, "invalid_request_error", "invalid_api_key"),
    (UnknownModel, 404, "invalid_request_error", "model_not_found"),
    (NotStored, 404, "invalid_request_error", None),
    (SessionNotFound, 404, "invalid_request_error", None),
    (SessionExists, 409, "invalid_request_error", None),
    (SessionBusy, 409, "invalid_request_error", None),
    (Cancelled, 409, "invalid_request_error", None),  # somebody closed the session that it worked on
    (ContextLengthError, 400, "invalid_request_error", "context_length_exceeded"),
    (RequestError, 400, "invalid_request_error", None),
    (NeverFits, 400, "invalid_request_error", None),
    (QueueFull, 429, "rate_limit_error", "rate_limit_exceeded"),
    (CapacityError, 503, "server_error", None),
    (EngineClosed, 503, "server_error", None),
)

STOPPING = EngineClosed("the server is stopping")

_HTTP_CODES = {404: "not_found", 405: "method_not_allowed", 408: "body_timeout", 413: "body_too_large"}


def status_and_body(error: Exception) -> tuple[int, dict[str, Any]]:
    """HTTP status and `{"error": {...}}`. An error that is not for clients becomes 500 with a generic message."""
    for kind, status, error_type, code in _KINDS:
        if isinstance(error, kind):
            param = error.param if isinstance(error, InvalidRequest) else None
            if isinstance(error, UnknownModel):
                param = "model"
            return status, error_body(str(error), error_type, code or error.code, param)
    return 500, error_body("the server failed to answer; the error was logged", "server_error", "internal_error")


def kind_of(error: Exception) -> str:
    """The error's name in metrics and logs."""
    return error.code if isinstance(error, TenutoError) else "internal_error"


def error_body(message: str, error_type: str, code: str | None, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": error_type, "param": param, "code": code}}


def log_if_unexpected(error: Exception, request_id: str) -> None:
    """Says where it happened, but not the message: an exception's message may quote what a user wrote."""
    if status_and_body(error)[0] == 500:
        _log.error("request_failed", request_id=request_id, error=type(error).__name__, where=_where(error))


def _where(error: BaseException) -> list[str]:
    """The innermost ten frames as `file:line function`."""
    frames, traceback = [], error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        frames.append(f"{code.co_filename}:{traceback.tb_lineno} {code.co_name}")
        traceback = traceback.tb_next
    return frames[-10:]


def error_response(error: Exception, limits: ServerLimits) -> Response:
    status, body = status_and_body(error)
    headers: dict[str, str] = {}
    if isinstance(error, QueueFull):
        headers["Retry-After"] = str(error.retry_after_s or limits.retry_after_s)
    elif isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(body, status, headers)


def install_error_handlers(app: FastAPI, limits: ServerLimits, retry_after_s: Callable[[], int]) -> None:
    """Every error the routes raise leaves in OpenAI's shape; what is not listed here is RequestScope's to answer.

    Args:
        retry_after_s: when a client shall come back that found the engine's queue full.
    """

    async def on_tenuto_error(request: Request, error: Exception) -> Response:
        request.state.record.error = kind_of(error)
        if isinstance(error, QueueFull) and error.retry_after_s is None:
            error.retry_after_s = retry_after_s()
        log_if_unexpected(error, request.state.request_id)
        return error_response(error, limits)

    async def on_http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        message = str(error.detail)
        if error.status_code in (404, 405):
            message = f"{request.method} {request.url.path[:200]} is not served here"
        code = _HTTP_CODES.get(error.status_code)
        request.state.record.error = code or f"http_{error.status_code}"
        body = error_body(message, "invalid_request_error", code)
        return JSONResponse(body, error.status_code, error.headers)

    async def on_validation_error(request: Request, error: Exception) -> Response:
        request.state.record.error = "invalid_request"
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"][1:])  # the first part says that it is of the query
        return error_response(InvalidRequest(f"{path}: {first['msg']}", path), limits)

    app.add_exception_handler(TenutoError, on_tenuto_error)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(RequestValidationError, on_validation_error)


def log_disconnect(request_id: str) -> None:
    """Once for each request whose client left before its answer was whole."""
    _log.info("client_disconnected", request_id=request_id)
