"""POST /v1/embeddings."""

from __future__ import annotations

import asyncio
import base64
from typing import Any, Literal

import msgspec
from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel, Field
from starlette.requests import Request

from tenuto.errors import InvalidRequest, UnknownModel
from tenuto.protocol.embedding import EmbeddingClient, Embeddings, EmbedRequest
from tenuto.server.answers import body_documentation, whole_answer
from tenuto.server.body import read_json_object
from tenuto.server.hints import run_hints
from tenuto.server.replies import ERROR_RESPONSES
from tenuto.server.service import Service
from tenuto.server.text_input import TextsOrIds, read_texts
from tenuto.server.wire_shape import Wire, parse_body

PATH = "/v1/embeddings"
MAX_INPUTS = 2048
_ROWS_A_TURN = 16  # encoded before others get their turn of the event loop


class EmbeddingBody(Wire):
    """Texts to turn into vectors. Fields that are not listed are ignored."""

    model: str = Field(description="a name from GET /v1/models; `default` is always accepted")
    input: TextsOrIds = Field(
        description=f"one text or up to {MAX_INPUTS}: strings, or lists of token ids, which are taken as they are"
    )
    dimensions: int | None = Field(
        None,
        ge=1,
        description="keep so many of the first numbers, then normalise again: for models made for it (Matryoshka)",
    )
    encoding_format: Literal["float", "base64"] | None = Field(
        None, description="`float` (the default): a list of numbers; `base64`: of float32, little-endian"
    )
    prompt: str | None = Field(
        None, description="extension: the name of one of the model's prompts, written before each text, e.g. `query`"
    )
    truncate: bool | None = Field(None, description="extension: cut what is too long, instead of refusing it")
    user: str | None = Field(None, description="ignored")


class EmbeddingReply(BaseModel):
    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str = Field(description="numbers, or base64 text")


class EmbeddingUsage(BaseModel):
    prompt_tokens: int = Field(description="special ones and the model's prompts included")
    total_tokens: int


class EmbeddingList(BaseModel):
    object: Literal["list"] = "list"
    data: list[EmbeddingReply] = Field(description="one for each input, in their order")
    model: str
    usage: EmbeddingUsage


def embedding_routes(service: Service) -> APIRouter:
    router = APIRouter(tags=["embeddings"])

    @router.post(
        PATH,
        summary="Turn texts into vectors",
        response_model=EmbeddingList,
        responses=ERROR_RESPONSES,
        openapi_extra=body_documentation(EmbeddingBody),
    )
    async def create_embeddings(request: Request) -> Response:
        """With the generating model, by the hidden states of the last layer, or with the model that the setting
        `embedding_model` names."""
        body = parse_body(await read_json_object(request, service.limits), EmbeddingBody, {})
        client = service.others.embedder
        if client is None:
            raise UnknownModel("no model is served here for embeddings")
        model = (await client.info()).model
        service.check_name_of(body.model, model)
        asked = EmbedRequest(
            inputs=read_texts(body.input, "input", MAX_INPUTS),
            dimensions=body.dimensions,
            prompt=body.prompt,
            truncate=bool(body.truncate),
            hints=run_hints(request),
        )
        return await whole_answer(request, _answer(client, asked, model, body.encoding_format), service.limits)

    return router


async def _answer(client: EmbeddingClient, asked: EmbedRequest, model: str, encoding: str | None) -> bytes:
    """The wire form of `EmbeddingList`, as JSON: thousands of vectors are not encoded in one go."""
    try:
        found = await client.embed(asked)
    except InvalidRequest as error:
        raise _in_our_words(error) from error
    rows: list[msgspec.Raw] = []
    for index in range(len(found.vectors)):
        rows.append(msgspec.Raw(msgspec.json.encode(_row(found, index, encoding))))
        if index % _ROWS_A_TURN == _ROWS_A_TURN - 1:
            await asyncio.sleep(0)
    num_tokens = found.usage.num_tokens
    usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    return msgspec.json.encode({"object": "list", "data": rows, "model": model, "usage": usage})


def _row(found: Embeddings, index: int, encoding: str | None) -> dict[str, Any]:
    row = found.vectors[index]
    embedding: Any = row.tolist()
    if encoding == "base64":
        embedding = base64.b64encode(row.astype("<f4").tobytes()).decode("ascii")
    return {"object": "embedding", "index": index, "embedding": embedding}


def _in_our_words(error: InvalidRequest) -> InvalidRequest:
    """The client's field is named `inputs`, ours `input`."""
    if error.param is None or not error.param.startswith("inputs"):
        return error
    return InvalidRequest(str(error), "input" + error.param.removeprefix("inputs"))
