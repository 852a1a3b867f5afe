"""POST /release_kv_cache: openJiuwen's older way to say which KV will not be wanted again."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import Field
from starlette.requests import Request

from tenuto.errors import RequestError
from tenuto.protocol.chat import ChatRequest
from tenuto.protocol.hints import RunHints
from tenuto.protocol.release import KeptPart, ReleaseClient
from tenuto.server.answers import body_documentation, whole_answer
from tenuto.server.body import read_json_object
from tenuto.server.chat_request import NOT_SERVED, to_chat_request
from tenuto.server.hints.run_hints import run_hints
from tenuto.server.hints.wire import ReleasedBlocks
from tenuto.server.replies import ERROR_RESPONSES
from tenuto.server.service import Service
from tenuto.server.wire import EditsOnlyBody
from tenuto.server.wire_shape import parse_body

PATHS = ("/release_kv_cache", "/v1/release_kv_cache")

_DESCRIPTION = """
Gives up the KV of a conversation from some message or tool on, before the pool takes it back by itself. The body is the
conversation as it was asked for, and two places in it. Without messages, all that was computed for the session that
`cache_salt` names (with `cache_sharing`) is given up.

What a running request holds, and what other conversations go on from, stays. What is given up and wanted after all is
computed again: a wrong hint costs time.
"""


class ReleaseBody(EditsOnlyBody):
    """A conversation, and from where on its KV will not be wanted again. Fields that are not listed are ignored."""

    messages_released_index: int | None = Field(
        None, description="the first message to give up. Default: the first of all, or none if tools are given up"
    )
    tools_released_index: int | None = Field(None, description="the first tool to give up. Default: none")


def release_routes(service: Service) -> APIRouter:
    router = APIRouter(tags=["hints"])

    async def release_kv_cache(request: Request) -> Response:
        limits = service.limits
        body = parse_body(await read_json_object(request, limits), ReleaseBody, NOT_SERVED)
        service.check_name(body.model)
        hints = run_hints(request, agent=body.agent_hint, cache_salt=body.cache_salt, cache_sharing=body.cache_sharing)
        asked = to_chat_request(body, request.state.request_id, limits, hints)
        return await whole_answer(request, _released(body, asked, hints, service.others.releases), limits)

    for path in PATHS:
        router.add_api_route(
            path,
            release_kv_cache,
            methods=["POST"],
            summary="Give up KV",
            description=_DESCRIPTION,
            response_model=ReleasedBlocks,
            responses=ERROR_RESPONSES,
            openapi_extra=body_documentation(ReleaseBody),
        )
    return router


async def _released(
    body: ReleaseBody, asked: ChatRequest, hints: RunHints, releases: ReleaseClient | None
) -> dict[str, Any]:
    """The wire form of `ReleasedBlocks`."""
    num_blocks = 0
    if releases is not None:
        try:
            if asked.messages:
                num_blocks = await releases.release_conversation(asked, _kept(body, asked))
            else:
                num_blocks = await releases.release_run(hints)
        except RequestError:
            num_blocks = 0  # a conversation that cannot be asked for was never asked for, and has no KV
    return {"cache_salt": body.cache_salt, "block_released": num_blocks}


def _kept(body: ReleaseBody, asked: ChatRequest) -> KeptPart:
    num_tools = None if body.tools_released_index is None else max(0, body.tools_released_index)
    if body.messages_released_index is None:
        num_messages = 0 if num_tools is None else len(asked.messages)
    else:
        num_messages = max(0, body.messages_released_index)
    return KeptPart(num_messages=num_messages, num_tools=num_tools)
