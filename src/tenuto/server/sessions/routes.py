"""`/v1/sessions`: the engine's calls over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse, Response
from starlette.requests import Request

from tenuto.ids import RequestId
from tenuto.protocol.hints import ExpectedWait, RunHints
from tenuto.server.answers import STREAM_CONTENT, EventStream, body_documentation, whole_answer
from tenuto.server.body import read_json_object
from tenuto.server.replies import ERROR_RESPONSES, error_response
from tenuto.server.request_scope import tenant_of
from tenuto.server.service import Service
from tenuto.server.sessions import replies, wire
from tenuto.server.sessions.desk import SessionDesk
from tenuto.server.sessions.names import check_name
from tenuto.server.sessions.reading import generate_of, hints_of, input_of
from tenuto.server.sessions.transfer import CONTENT_TYPE, ExportStream, import_body
from tenuto.server.sessions.writer import GenerationWriter, whole_generation
from tenuto.server.wire_shape import W, parse_body

PATH = "/v1/sessions"
_ONE = PATH + "/{id}"
_BINARY = {CONTENT_TYPE: {"schema": {"type": "string", "format": "binary"}}}
_ERRORS = ERROR_RESPONSES | {
    404: error_response("There is no session of that name"),
    409: error_response("It exists already, or another call opens it or computes on it"),
}

_GENERATE = """
Adds the input, then generates until a stop. `token_ids` are what the session gains: ids and text never part.

With `stream`, each event is `data:` and a `session.generation.chunk` with the next `token_ids` and their `text`; the
last has `finish_reason`, `stop_reason`, `input_ids` and `usage`, then comes `data: [DONE]`. With stop strings, ids wait
until no stop string can begin in them. An error before the first event has its own status; a later one is an event
`{"error": ...}`, followed by `data: [DONE]`.

A client that closes its connection cancels its call; the session keeps the input and what was generated.
"""


def session_routes(service: Service) -> APIRouter:
    router = APIRouter(tags=["sessions"], responses=_ERRORS)
    desk = SessionDesk(service)
    _add_opening(router, service, desk)
    _add_reading(router, desk)
    _add_computing(router, service, desk)
    _add_keeping(router, service, desk)
    _add_transfer(router, service, desk)
    return router


def _add_opening(router: APIRouter, service: Service, desk: SessionDesk) -> None:
    @router.post(
        PATH,
        summary="Open a session",
        response_model=replies.SessionReply,
        openapi_extra=body_documentation(wire.SessionCreateBody),
    )
    async def create_session(request: Request) -> Response:
        body = await _body(request, service, wire.SessionCreateBody)
        tenant = tenant_of(request)
        return JSONResponse(await desk.create(tenant, body.id, hints_of(body, tenant), body.parent))

    @router.post(
        _ONE + "/fork",
        summary="Fork a session: its tokens, and its KV shared",
        response_model=replies.SessionReply,
        openapi_extra=body_documentation(wire.SessionForkBody),
    )
    async def fork_session(request: Request, id: str) -> Response:
        body = await _body(request, service, wire.SessionForkBody)
        tenant = tenant_of(request)
        hints = hints_of(body, tenant, desk.directory.find(tenant, id).hints)
        return JSONResponse(await desk.create(tenant, body.id, hints, id))

    @router.delete(_ONE, summary="Free a session; a call that runs on it ends", response_model=replies.SessionDeleted)
    async def delete_session(request: Request, id: str) -> Response:
        desk.client  # noqa: B018 - raises where sessions are not served
        await desk.directory.close(desk.directory.find(tenant_of(request), id))
        return JSONResponse({"id": id, "object": "session.deleted", "deleted": True})


def _add_reading(router: APIRouter, desk: SessionDesk) -> None:
    @router.get(PATH, summary="List your sessions", response_model=replies.SessionList)
    async def list_sessions(
        request: Request, limit: Annotated[int, Query(ge=1, le=100)] = 20, after: str | None = None
    ) -> Response:
        entries, has_more = desk.directory.page(tenant_of(request), limit, after)
        names = [entry.name for entry in entries]
        page: dict[str, Any] = {"object": "list", "data": [desk.summary(entry) for entry in entries]}
        ends = {"first_id": names[0] if names else None, "last_id": names[-1] if names else None}
        return JSONResponse(page | {"has_more": has_more} | ends)

    @router.get(_ONE, summary="What a session holds, and what it cost", response_model=replies.SessionReply)
    async def get_session(request: Request, id: str) -> Response:
        with desk.looking(tenant_of(request), id) as entry:
            return JSONResponse(await desk.told(entry))

    @router.get(_ONE + "/tokens", summary="A session's ids and text", response_model=replies.SessionTokensReply)
    async def get_tokens(request: Request, id: str) -> Response:
        with desk.looking(tenant_of(request), id) as entry:
            content = await desk.client.content(entry.session)
        ids = list(content.ids)
        return JSONResponse({"id": id, "object": "session.tokens", "token_ids": ids, "text": content.text})


def _add_computing(router: APIRouter, service: Service, desk: SessionDesk) -> None:
    @router.post(
        _ONE + "/append",
        summary="Add tokens and compute them now",
        response_model=replies.SessionAppended,
        openapi_extra=body_documentation(wire.SessionAppendBody),
    )
    async def append(request: Request, id: str) -> Response:
        body = await _body(request, service, wire.SessionAppendBody)
        added, tenant = input_of(body, required=True), tenant_of(request)

        async def work() -> dict[str, Any]:
            with desk.using(tenant, id) as entry:
                ids = await desk.client.append(entry.session, added, hints_of(body, tenant, entry.hints))
                num_tokens = (await desk.client.stats(entry.session)).num_tokens
            own = {"object": "session.append", "session": id}
            return own | {"input_ids": list(ids), "num_tokens": num_tokens}

        return await whole_answer(request, work(), service.limits)

    @router.post(
        _ONE + "/generate",
        summary="Add tokens, then generate",
        description=_GENERATE,
        response_model=replies.SessionGeneration,
        response_description="The new tokens, whole or streamed",
        responses={200: {"content": STREAM_CONTENT}},
        openapi_extra=body_documentation(wire.SessionGenerateBody),
    )
    async def generate(request: Request, id: str) -> Response:
        request_id: RequestId = request.state.request_id
        body = await _body(request, service, wire.SessionGenerateBody)
        tenant = tenant_of(request)
        hints = hints_of(body, tenant, desk.directory.find(tenant, id).hints)
        events = desk.generate(tenant, id, generate_of(body, request_id, hints, service.limits))
        own = {"id": "gen-" + request_id.removeprefix("req-"), "session": id}
        if body.stream:
            return EventStream(events, GenerationWriter(own), request_id, service.limits)
        return await whole_answer(request, whole_generation(events, own), service.limits)


def _add_keeping(router: APIRouter, service: Service, desk: SessionDesk) -> None:
    @router.post(
        _ONE + "/suspend",
        summary="Say that a session waits, e.g. for a tool",
        response_model=replies.SessionReply,
        openapi_extra=body_documentation(wire.SessionSuspendBody),
    )
    async def suspend(request: Request, id: str) -> Response:
        body = await _body(request, service, wire.SessionSuspendBody)
        wait = ExpectedWait(seconds=body.seconds, reason=body.reason or "tool")
        with desk.using(tenant_of(request), id) as entry:
            await desk.client.suspend(entry.session, wait)
            entry.keep_until_s = service.clock.now() + (wait.seconds or 0.0)
            return JSONResponse(await desk.told(entry))

    @router.post(
        _ONE + "/truncate",
        summary="Forget all but the first tokens",
        response_model=replies.SessionReply,
        openapi_extra=body_documentation(wire.SessionTruncateBody),
    )
    async def truncate(request: Request, id: str) -> Response:
        body = await _body(request, service, wire.SessionTruncateBody)
        with desk.using(tenant_of(request), id) as entry:
            await desk.client.truncate(entry.session, body.num_tokens)
            return JSONResponse(await desk.told(entry))


def _add_transfer(router: APIRouter, service: Service, desk: SessionDesk) -> None:
    @router.get(
        _ONE + "/export",
        summary="A session as bytes: tokens and KV",
        response_class=Response,
        responses={200: {"content": _BINARY}},
    )
    async def export(request: Request, id: str) -> Response:
        pieces = desk.export(tenant_of(request), id)
        return ExportStream(pieces, id, request.state.request_id, service.limits)

    async def import_session(request: Request, id: str) -> Response:
        client, tenant = desk.client, tenant_of(request)
        hints = RunHints(tenant=tenant)
        entry = desk.directory.add(tenant, check_name(id, "id"), hints)

        async def work() -> None:
            await import_body(request, lambda pieces: client.import_(entry.session, pieces, hints), service.limits)

        return JSONResponse(await desk.open(entry, work))

    for method in ("PUT", "POST"):
        router.add_api_route(
            _ONE + "/import",
            import_session,
            methods=[method],
            operation_id=f"import_session_{method.lower()}",
            summary="Open a session from exported bytes",
            response_model=replies.SessionReply,
            openapi_extra={"requestBody": {"required": True, "content": _BINARY}},
        )


async def _body(request: Request, service: Service, kind: type[W]) -> W:
    return parse_body(await read_json_object(request, service.limits), kind, {})
