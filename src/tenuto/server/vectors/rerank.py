"""POST /v1/rerank, in the form of Cohere's and Jina's APIs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel, Field, Tag
from starlette.requests import Request

from tenuto.errors import UnknownModel
from tenuto.protocol.embedding import RerankClient, RerankRequest
from tenuto.server.answers import body_documentation, whole_answer
from tenuto.server.body import read_json_object
from tenuto.server.hints import run_hints
from tenuto.server.replies import ERROR_RESPONSES
from tenuto.server.service import Service
from tenuto.server.wire_shape import Wire, either, parse_body

PATH = "/v1/rerank"


class TextDocument(Wire):
    text: str


class RerankBody(Wire):
    """Documents to order by how well they answer a query. Fields that are not listed are ignored."""

    model: str = Field(description="a name from GET /v1/models; `default` is always accepted")
    query: str = Field(description="what the documents are to answer")
    documents: list[
        Annotated[
            Annotated[str, Tag("text")] | Annotated[TextDocument, Tag("object")],
            either('Input should be a string or {"text": ...}'),
        ]
    ] = Field(fail_fast=True, min_length=1, description="strings, or objects with a `text`")
    top_n: int | None = Field(None, ge=1, description="only the best so many. Default: all")
    return_documents: bool | None = Field(None, description="give the texts back. Default true, as in Jina's API")
    truncate: bool | None = Field(None, description="extension: cut documents that are too long, instead of refusing")


class RankedText(BaseModel):
    text: str


class RankedReply(BaseModel):
    index: int = Field(description="place among the request's documents")
    relevance_score: float = Field(description="higher is better; comparable within one model only")
    document: RankedText | None = Field(None, description="left out if not asked for")


class RerankUsage(BaseModel):
    prompt_tokens: int
    total_tokens: int


class RerankReply(BaseModel):
    id: str
    object: Literal["list"] = "list"
    model: str
    results: list[RankedReply] = Field(description="best first; equal scores in the request's order")
    usage: RerankUsage


def rerank_routes(service: Service) -> APIRouter:
    router = APIRouter(tags=["rerank"])

    @router.post(
        PATH,
        summary="Order documents by relevance",
        response_model=RerankReply,
        responses=ERROR_RESPONSES,
        openapi_extra=body_documentation(RerankBody),
    )
    async def rerank(request: Request) -> Response:
        """With the model that the setting `rerank_model` names; without one, by the similarity of embeddings."""
        body = parse_body(await read_json_object(request, service.limits), RerankBody, {})
        client = service.others.reranker
        if client is None:
            raise UnknownModel("no model is served here for reranking")
        model = (await client.info()).model
        service.check_name_of(body.model, model)
        asked = RerankRequest(
            query=body.query,
            documents=tuple(one if isinstance(one, str) else one.text for one in body.documents),
            top_n=body.top_n,
            truncate=bool(body.truncate),
            hints=run_hints(request),
        )
        name = "rerank-" + request.state.request_id.removeprefix("req-")
        work = _answer(
            client, asked, {"id": name, "object": "list", "model": model}, body.return_documents is not False
        )
        return await whole_answer(request, work, service.limits)

    return router


async def _answer(
    client: RerankClient, asked: RerankRequest, form: dict[str, Any], return_documents: bool
) -> dict[str, Any]:
    """The wire form of `RerankReply`."""
    ranking = await client.rerank(asked)
    results = []
    for ranked in ranking.documents:
        one: dict[str, Any] = {"index": ranked.index, "relevance_score": ranked.score}
        results.append(one | {"document": {"text": asked.documents[ranked.index]}} if return_documents else one)
    num_tokens = ranking.usage.num_tokens
    return {**form, "results": results, "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens}}
