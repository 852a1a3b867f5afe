"""Reads a request's body as strict JSON: bounded in bytes, time and depth, valid UTF-8, no NaN, no lone surrogate."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request

from tenuto.errors import InvalidRequest
from tenuto.server.limits import ServerLimits

_MIN_INTEGER, _MAX_INTEGER = -(2**63), 2**64 - 1


async def read_json_object(request: Request, limits: ServerLimits) -> dict[str, Any]:
    """The body as an object.

    Raises InvalidRequest if it is not strict JSON or not an object, HTTPException 408, 413 or 415 if it is slow,
    large or not declared as JSON.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    # Only this type makes a browser ask before it sends: other sites' pages cannot use a server on this machine.
    if media_type != "application/json":
        raise HTTPException(415, "the body must be JSON: send the header Content-Type: application/json")
    body = decode_json(await _read(request, limits), limits.max_json_depth, limits.max_json_values)
    if not isinstance(body, dict):
        raise InvalidRequest("the body must be a JSON object")
    return body


async def _read(request: Request, limits: ServerLimits) -> bytes:
    too_large = HTTPException(413, f"the body is larger than {limits.max_body_bytes} bytes; send fewer messages")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > limits.max_body_bytes:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(limits.body_deadline_s):
            async for piece in request.stream():
                body += piece
                if len(body) > limits.max_body_bytes:
                    raise too_large
    except TimeoutError as error:
        raise HTTPException(408, f"the body did not arrive within {limits.body_deadline_s:g} s") from error
    return bytes(body)


def decode_json(text: bytes | str, max_depth: int, max_values: int) -> Any:
    """Strict JSON to plain values. Raises InvalidRequest saying what is wrong, without quoting the text."""
    try:
        value = msgspec.json.decode(text)
    except RecursionError as error:
        raise InvalidRequest(f"JSON is nested deeper than {max_depth}") from error
    except UnicodeEncodeError as error:
        raise InvalidRequest("JSON contains a lone surrogate") from error
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"not valid JSON: {error}") from error
    _check_size_and_numbers(value, max_depth, max_values)
    return value


def _check_size_and_numbers(value: Any, max_depth: int, max_values: int) -> None:
    """Level by level, without recursion, so that no later room can run out of stack or overflow."""
    level = [value]
    num_values = 1
    for _ in range(max_depth + 1):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
            elif type(item) is int and not _MIN_INTEGER <= item <= _MAX_INTEGER:
                raise InvalidRequest("not valid JSON: an integer does not fit 64 bits")
        if not below:
            return
        num_values += len(below)
        if num_values > max_values:
            raise InvalidRequest(f"JSON holds more than {max_values} values; send fewer messages, or simpler tools")
        level = below
    raise InvalidRequest(f"JSON is nested deeper than {max_depth}")
