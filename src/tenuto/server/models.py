"""GET /v1/models, /v1/models/{id} and /health."""

from __future__ import annotations

from fastapi import APIRouter

from tenuto.errors import UnknownModel
from tenuto.server.replies import ERROR_RESPONSES, Health, ModelCard, ModelList
from tenuto.server.service import Service


def model_routes(service: Service) -> APIRouter:
    router = APIRouter()

    async def cards() -> dict[str, ModelCard]:
        """By name: those of the model that generates, then those that embed or rerank, if they are others."""
        lengths = dict.fromkeys(service.accepted_names, (await service.model.info()).max_model_tokens)
        for other in (service.others.embedder, service.others.reranker):
            if other is not None:
                info = await other.info()
                lengths.setdefault(info.model, info.max_model_tokens)
        return {
            name: ModelCard(id=name, created=service.created, max_model_tokens=most) for name, most in lengths.items()
        }

    @router.get("/v1/models", tags=["models"], summary="List the models")
    async def list_models() -> ModelList:
        """Every name that a request may use: of the model that generates, and of those that embed and rerank."""
        return ModelList(data=list((await cards()).values()))

    # A model's name may contain slashes.
    @router.get(
        "/v1/models/{model:path}", tags=["models"], summary="Show one model", responses={404: ERROR_RESPONSES[404]}
    )
    async def retrieve_model(model: str) -> ModelCard:
        """The same as its entry in the list."""
        known = await cards()
        if model not in known:
            raise UnknownModel(f"no model {model[:100]!r} is served here; served: {', '.join(known)}")
        return known[model]

    @router.get("/health", tags=["health"], summary="Is the server up?", responses={503: ERROR_RESPONSES[503]})
    async def health() -> Health:
        """Answers 200 as long as the engine takes requests, 503 once it has stopped."""
        return Health(model=(await service.model.info()).name)

    return router
