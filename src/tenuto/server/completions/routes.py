"""POST /v1/completions, plain and streamed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response
from starlette.requests import Request

from tenuto.errors import InvalidRequest, UnknownModel
from tenuto.ids import RequestId
from tenuto.protocol.completion import MAX_COMPLETIONS, CompletionEvent, CompletionRequest
from tenuto.protocol.hints import RunHints
from tenuto.server.answers import STREAM_CONTENT, EventStream, body_documentation, closable, whole_answer
from tenuto.server.body import read_json_object
from tenuto.server.completions.wire import DEFAULT_MAX_TOKENS, Completion, CompletionBody
from tenuto.server.completions.writer import CompletionForm, CompletionWriter
from tenuto.server.hints import run_hints
from tenuto.server.limits import ServerLimits
from tenuto.server.replies import ERROR_RESPONSES
from tenuto.server.sampling_fields import sampling_of, stops_of
from tenuto.server.service import Service
from tenuto.server.text_input import read_texts
from tenuto.server.wire_shape import parse_body

PATH = "/v1/completions"

# Fields of OpenAI's API that are not served, and the values that ask for nothing.
NOT_SERVED: dict[str, tuple[Any, ...]] = {"suffix": (None, "")}

_DESCRIPTION = """
Goes on with a text as it stands, without a chat template.

With `stream`, the answer is a series of server-sent events, each `data:` and a `text_completion` with a piece of one
choice; the last piece of a choice has the `finish_reason`; then the usage if it was asked for, and `data: [DONE]`. An
error before the first event has its own status; a later one is an event `{"error": ...}`, followed by `data: [DONE]`.
"""


def completion_routes(service: Service) -> APIRouter:
    router = APIRouter(tags=["completions"])

    @router.post(
        PATH,
        summary="Go on with a text",
        description=_DESCRIPTION,
        response_model=Completion,
        response_description="The completion, whole or streamed",
        responses={200: {"content": STREAM_CONTENT}, **ERROR_RESPONSES},
        openapi_extra=body_documentation(CompletionBody),
    )
    async def create_completion(request: Request) -> Response:
        request_id: RequestId = request.state.request_id
        limits = service.limits
        body = parse_body(await read_json_object(request, limits), CompletionBody, NOT_SERVED)
        service.check_name(body.model)
        client = service.others.completion
        if client is None:
            raise UnknownModel("no model is served here for completions; use /v1/chat/completions")
        asked = to_completion_request(body, request_id, run_hints(request), limits)
        options = body.stream_options
        form = CompletionForm(
            id="cmpl-" + request_id.removeprefix("req-"),
            created=int(service.clock.today().timestamp()),
            model=service.name,
            num_choices=len(asked.prompts) * asked.n,
            scored=asked.logprobs is not None,
            include_usage=bool(options and options.include_usage),
        )
        events, writer = client.complete(asked), CompletionWriter(form)
        if body.stream:
            return EventStream(events, writer, request_id, limits)
        return await whole_answer(request, _whole(events, writer), limits)

    return router


def to_completion_request(
    body: CompletionBody, request_id: RequestId, hints: RunHints, limits: ServerLimits
) -> CompletionRequest:
    """Raises InvalidRequest."""
    n = body.n or 1
    if body.best_of is not None and body.best_of != n:
        raise InvalidRequest("best_of: only served if it equals n; leave it out", "best_of")
    if body.echo and body.logprobs is not None:
        raise InvalidRequest("echo: not together with logprobs, as the prompt's tokens are not scored", "echo")
    if body.stream_options is not None and not body.stream:
        raise InvalidRequest("stream_options: only with stream", "stream_options")
    prompts = read_texts(body.prompt, "prompt", MAX_COMPLETIONS)
    if len(prompts) * n > MAX_COMPLETIONS:
        raise InvalidRequest(
            f"prompt: {len(prompts)} prompts with n {n}, {MAX_COMPLETIONS} completions at most", "prompt"
        )
    default = min(DEFAULT_MAX_TOKENS, limits.max_output_tokens or DEFAULT_MAX_TOKENS)
    return CompletionRequest(
        prompts=prompts,
        max_tokens=body.max_tokens or default,
        sampling=sampling_of(body, request_id),
        n=n,
        logprobs=body.logprobs,
        stop=stops_of(body),
        echo=bool(body.echo),
        ignore_eos=bool(body.ignore_eos),
        hints=hints,
    )


async def _whole(events: AsyncIterator[CompletionEvent], writer: CompletionWriter) -> dict[str, Any]:
    async with aclosing(closable(events)):
        async for event in events:
            writer.add(event)
    return writer.whole()
