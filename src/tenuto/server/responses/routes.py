"""POST /v1/responses, and what is done with the responses that are kept."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, Literal

import msgspec
from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse, Response
from starlette.requests import Request

from tenuto.errors import InvalidRequest
from tenuto.ids import RequestId, RunId
from tenuto.protocol.chat import ChatRequest, ModelEvent
from tenuto.protocol.hints import RunHints
from tenuto.protocol.messages import Message
from tenuto.server.answers import STREAM_CONTENT, EventStream, body_documentation, closable, whole_answer
from tenuto.server.body import read_json_object
from tenuto.server.hints import run_hints
from tenuto.server.replies import ERROR_RESPONSES
from tenuto.server.request_scope import tenant_of
from tenuto.server.responses.items import read_input
from tenuto.server.responses.replies import DeletedReply, ItemListReply, ResponseReply
from tenuto.server.responses.request import NOT_SERVED, Asked, echoed, parse_response_body
from tenuto.server.responses.store import KeptTurn, ResponseStore
from tenuto.server.responses.wire import ResponseCreateBody
from tenuto.server.responses.writer import ResponseForm, ResponseWriter
from tenuto.server.service import Service

PATH = "/v1/responses"

_DESCRIPTION = f"""
Continues a conversation by one turn, as OpenAI's Responses API does.

With `stream`, the answer is a series of server-sent events, each with its `type` as the event's name and a
`sequence_number`: `response.created`, `response.in_progress`, then for each item `response.output_item.added`, its
parts, and `response.output_item.done`; last `response.completed`, or `response.incomplete` at the token limit, or
`response.failed`. An error before the first event has its own status. Nothing follows the last event.

A client that closes its connection cancels its request; what was generated is not kept.

Not served, and refused unless they ask for nothing: {", ".join(f"`{name}`" for name in NOT_SERVED)}; hosted tools;
images, audio and files.
"""

_STORED: dict[int | str, dict[str, Any]] = {
    404: ERROR_RESPONSES[404] | {"description": "No response of that id is stored: it expired, or never was"}
}


def response_routes(service: Service) -> APIRouter:
    router = APIRouter(tags=["responses"])
    store = ResponseStore(service.limits.stored_responses, service.clock)

    @router.post(
        PATH,
        summary="Create a response",
        description=_DESCRIPTION,
        response_model=ResponseReply,
        response_description="The response, whole or streamed",
        responses={200: {"content": STREAM_CONTENT}, **ERROR_RESPONSES},
        openapi_extra=body_documentation(ResponseCreateBody),
    )
    async def create_response(request: Request) -> Response:
        body = parse_response_body(await read_json_object(request, service.limits), service.limits)
        service.check_name(body.model)
        request_id: RequestId = request.state.request_id
        tenant = tenant_of(request)
        form = ResponseForm(
            name=request_id.removeprefix("req-"), created=_now(service), model=service.name, echoed=echoed(body)
        )
        asked = _read(body, form.name, tenant, store, service)
        chat_request = asked.chat_request(request_id, _hints(request, body, form, store))

        def keep(response: dict[str, Any], reply: Message) -> None:
            if body.store is not False:
                messages = (*asked.read.messages, reply)
                previous = body.previous_response_id
                turn = KeptTurn(id=form.id, previous=previous, body=response, items=asked.read.items, messages=messages)
                store.put(tenant, turn)

        events = _events(service, chat_request, asked)
        writer = ResponseWriter(form, lambda: _now(service), keep)
        if body.stream:
            return EventStream(events, writer, request_id, service.limits)
        return await whole_answer(request, _whole(events, writer), service.limits)

    _add_stored_routes(router, store)
    return router


def _add_stored_routes(router: APIRouter, store: ResponseStore) -> None:
    one = PATH + "/{response_id}"

    @router.get(one, summary="Show a stored response", response_model=ResponseReply, responses=_STORED)
    async def retrieve_response(request: Request, response_id: str, stream: bool = False) -> Response:
        """The response as it was answered. Its stream is not kept: `stream=true` is refused."""
        if stream:
            raise InvalidRequest("stream: a stored response is shown whole; leave stream out", "stream")
        return JSONResponse(store.body(tenant_of(request), response_id))

    @router.get(
        one + "/input_items", summary="List a response's input", response_model=ItemListReply, responses=_STORED
    )
    async def list_input_items(
        request: Request,
        response_id: str,
        limit: int = Query(20, ge=1, le=100, description="most items of one answer"),
        order: Literal["asc", "desc"] = Query("desc", description="`asc`: the first of the conversation first"),
        after: str | None = Query(None, max_length=200, description="go on after the item of this id"),
    ) -> Response:
        """All that the model was given, without instructions: the items of earlier responses it goes on from, input
        and output in their order, then its own input."""
        items = store.input_items(tenant_of(request), response_id)
        return JSONResponse(_page(items if order == "asc" else items[::-1], limit, after))

    @router.delete(one, summary="Delete a stored response", response_model=DeletedReply, responses=_STORED)
    async def delete_response(request: Request, response_id: str) -> Response:
        """Forgets it. Responses that go on from it stay, but cannot be gone on from any more."""
        store.delete(tenant_of(request), response_id)
        return JSONResponse(DeletedReply(id=response_id).model_dump())

    @router.post(one + "/cancel", summary="Refused", responses={400: ERROR_RESPONSES[400], **_STORED})
    async def cancel_response(request: Request, response_id: str) -> Response:
        """Only a response in the background could be cancelled so, and `background` is not served: close the
        connection of the request that is to end."""
        store.body(tenant_of(request), response_id)  # 404 if there is none
        raise InvalidRequest(
            "only a background response can be cancelled, and background is not served; close the connection instead"
        )


def _read(body: ResponseCreateBody, name: str, tenant: str, store: ResponseStore, service: Service) -> Asked:
    """Raises InvalidRequest, NotStored."""
    previous = body.previous_response_id
    history = () if previous is None else store.history(tenant, previous, "previous_response_id")
    read = read_input(
        body.input or [],
        name=name,
        lookup=store.lookup(tenant),
        limits=service.limits,
    )
    return Asked(body, history, read)


def _hints(request: Request, body: ResponseCreateBody, form: ResponseForm, store: ResponseStore) -> RunHints:
    """What the headers say; unless they name a run, a conversation of responses is one, named by its first."""
    hints, previous = run_hints(request), body.previous_response_id
    if hints.run is not None:
        return hints
    first = form.id if previous is None else store.first(hints.tenant, previous, "previous_response_id")
    return msgspec.structs.replace(hints, run=RunId(first))


async def _events(service: Service, chat_request: ChatRequest, asked: Asked) -> AsyncGenerator[ModelEvent, None]:
    """The model's. Raises what it raises, of a wrong message in the words of this API."""
    try:
        async with aclosing(closable(service.model.stream(chat_request))) as events:
            async for event in events:
                yield event
    except InvalidRequest as error:
        raise asked.in_our_words(error) from error


async def _whole(events: AsyncIterator[ModelEvent], writer: ResponseWriter) -> dict[str, Any]:
    async with aclosing(closable(events)):
        async for event in events:
            writer.add(event)
    assert writer.response is not None, "a model's stream ends with ReplyFinished"
    return writer.response


def _now(service: Service) -> int:
    return int(service.clock.today().timestamp())


def _page(items: list[dict[str, Any]], limit: int, after: str | None) -> dict[str, Any]:
    """Raises InvalidRequest if there is no item `after`."""
    first = 0
    if after is not None:
        places = [index for index, item in enumerate(items) if item["id"] == after]
        if not places:
            raise InvalidRequest(f"after: {after[:200]!r} is no item of this response", "after")
        first = places[0] + 1
    page = items[first : first + limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": first + limit < len(items),
    }
