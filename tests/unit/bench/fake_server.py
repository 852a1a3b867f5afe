"""A server of completions as an ASGI app: says numbers, remembers requests, and errs as it is told."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

Answer = Callable[[dict[str, Any]], "list[dict[str, Any] | str] | Response"]


class FakeServer:
    """Args:
    answer: a body to the events of its answer (a str is a line as it is), or to a whole response.
    """

    def __init__(self, path: str, answer: Answer, models: Any = None) -> None:
        self.bodies: list[dict[str, Any]] = []
        self._answer = answer
        self._models = {"data": [{"id": "模型"}]} if models is None else models
        routes = [Route(path, self._complete, methods=["POST"]), Route("/v1/models", self._list)]
        self.app = Starlette(routes=routes)

    def http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://fake")

    async def _list(self, _: Request) -> Response:
        return JSONResponse(self._models)

    async def _complete(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        answer = self._answer(body)
        return answer if isinstance(answer, Response) else StreamingResponse(_events(answer))


async def _events(events: list[dict[str, Any] | str]) -> AsyncIterator[str]:
    for event in events:
        yield event + "\n" if isinstance(event, str) else f"data: {json.dumps(event)}\n\n"
    yield "data: [DONE]\n\n"
