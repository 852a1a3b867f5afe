"""The application: routes, errors and documentation around one `ModelClient`."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter, FastAPI
from fastapi.middleware.cors import CORSMiddleware
from fastapi.routing import APIRoute

import tenuto
from tenuto.clock import Clock
from tenuto.ids import IdSource
from tenuto.protocol.chat import ModelClient
from tenuto.server.access import AccessGate
from tenuto.server.admission import Admission
from tenuto.server.chat_completions import chat_completion_routes
from tenuto.server.completions import CompletionBody, completion_routes
from tenuto.server.description import describe
from tenuto.server.docs_page import docs_routes
from tenuto.server.errors import install_error_handlers
from tenuto.server.guarded import guarded_model, guarded_others
from tenuto.server.hints.routes import ReleaseBody, release_routes
from tenuto.server.metrics import operation_routes
from tenuto.server.models import model_routes
from tenuto.server.operations import Operations
from tenuto.server.replies import ErrorReply
from tenuto.server.request_scope import RequestScope
from tenuto.server.responses import ResponseCreateBody, response_routes
from tenuto.server.service import OtherClients, Service
from tenuto.server.sessions import SESSION_BODIES, SessionDirectory, session_routes
from tenuto.server.vectors import EmbeddingBody, RerankBody, embedding_routes, rerank_routes
from tenuto.server.wire import ChatCompletionBody
from tenuto.telemetry import Telemetry

# Of routes that read them themselves.
_BODIES = (
    ChatCompletionBody,
    ResponseCreateBody,
    CompletionBody,
    EmbeddingBody,
    RerankBody,
    ReleaseBody,
    *SESSION_BODIES,
)


def create_app(
    model: ModelClient,
    *,
    served_names: tuple[str, ...],
    clock: Clock,
    ids: IdSource,
    others: OtherClients = OtherClients(),
    operations: Operations = Operations(),
) -> FastAPI:
    """The server as an ASGI application.

    Args:
        model: answers the requests; several at once.
        served_names: names of the model, the real one first; `default` is accepted besides.
        ids: request ids, and the seeds of requests that bring none.
        others: clients of the routes that do not chat.
        operations: limits, API keys, telemetry.
    """
    limits = operations.limits
    telemetry = operations.telemetry or Telemetry(clock)
    admission = Admission(clock, max_requests=limits.max_requests, max_tenant_requests=limits.max_tenant_requests)
    guarded = guarded_model(model, limits, telemetry)
    service = Service(
        model=guarded,
        others=guarded_others(others, limits, telemetry),
        served_names=served_names,
        clock=clock,
        ids=ids,
        limits=limits,
        sessions=SessionDirectory(clock, limits.sessions, (others.sessions or guarded).close),
        created=int(clock.today().timestamp()),
    )
    app = FastAPI(
        title="Tenuto",
        version=tenuto.__version__,
        description="OpenAI's chat API over an engine that holds each agent's KV cache across its tool calls.",
        docs_url=None,  # FastAPI's own page loads its scripts from a public site
        redoc_url=None,
    )
    describe(app, _BODIES, (ErrorReply,))
    routers = (
        model_routes(service),
        chat_completion_routes(service),
        response_routes(service),
        session_routes(service),
        completion_routes(service),
        embedding_routes(service),
        rerank_routes(service),
        release_routes(service),
        operation_routes(service, telemetry.metrics, admission),
        docs_routes(app.openapi),
    )
    for router in routers:
        app.include_router(router)
    install_error_handlers(app, limits, admission.retry_after_s)
    # The last that is added is the first to see a request.
    app.add_middleware(AccessGate, rules=operations.rules, admission=admission, limits=limits)
    app.add_middleware(RequestScope, ids=ids, limits=limits, telemetry=telemetry, paths=_fixed_paths(routers))
    _allow_pages_of(app, operations.cors_origins)
    app.state.admission = admission
    return app


def _fixed_paths(routers: Iterable[APIRouter]) -> frozenset[str]:
    """The paths without a variable part."""
    paths = (route.path for router in routers for route in router.routes if isinstance(route, APIRoute))
    return frozenset(path for path in paths if "{" not in path)


def _allow_pages_of(app: FastAPI, origins: tuple[str, ...]) -> None:
    """Browsers let pages of these sites call us."""
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("*",),
            expose_headers=("X-Request-ID", "Retry-After"),
        )
