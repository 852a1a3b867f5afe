"""Requests to servers whose answers come as server-sent events, one JSON value each."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

import httpx

from tenuto.errors import TenutoError

_SHOWN_CHARS = 300
TIMEOUT = httpx.Timeout(600.0, connect=10.0)  # a prompt may wait long for its first token


Events: TypeAlias = Callable[[str, dict[str, Any]], AsyncIterator[dict[str, Any]]]
"""The events that answer a body sent to an address, as they come; raises as `stream_events`."""


class ServerRefused(TenutoError):
    """A server answered with an error; carries its status and the beginning of its words."""

    def __init__(self, url: str, status: int, body: str) -> None:
        super().__init__(f"{url} answered with status {status}: {body.strip()[:_SHOWN_CHARS] or 'nothing'}")
        self.status = status


async def stream_events(http: httpx.AsyncClient, url: str, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """The events of one answer, as they come.

    Raises:
        ServerRefused: a status that is no success.
        TenutoError: no connection, or an answer that breaks off or is no JSON; names the address.
    """
    try:
        async with http.stream("POST", url, json=body) as response:
            if response.status_code != 200:
                raise ServerRefused(url, response.status_code, (await response.aread()).decode(errors="replace"))
            async for line in response.aiter_lines():
                data = line.removeprefix("data:").strip()
                if not line.startswith("data:") or data == "[DONE]":
                    continue
                event = json.loads(data)
                if not isinstance(event, dict):
                    raise TenutoError(f"{url} sent an event that is no object: {data[:_SHOWN_CHARS]}")
                if event.get("error"):
                    raise TenutoError(f"{url} broke off: {json.dumps(event['error'])[:_SHOWN_CHARS]}")
                yield event
    except httpx.HTTPError as error:
        raise TenutoError(f"{url}: {type(error).__name__} {error}".rstrip()) from error
    except json.JSONDecodeError as error:
        raise TenutoError(f"{url} sent an event that is no JSON: {error.doc[:_SHOWN_CHARS]}") from error


async def get_json(http: httpx.AsyncClient, url: str) -> Any:
    """Raises as `stream_events`."""
    try:
        response = await http.get(url)
        if response.status_code != 200:
            raise ServerRefused(url, response.status_code, response.text)
        return response.json()
    except httpx.HTTPError as error:
        raise TenutoError(f"{url}: {type(error).__name__} {error}".rstrip()) from error
    except json.JSONDecodeError as error:
        raise TenutoError(f"{url} answered with no JSON: {error.doc[:_SHOWN_CHARS]}") from error
