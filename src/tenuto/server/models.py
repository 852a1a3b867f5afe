"""GET /v1/models, /v1/models/{id} and /health."""

from __future__ import annotations

from fastapi import APIRouter

from tenuto.server.replies import ERROR_RESPONSES, Health, ModelCard, ModelList
from tenuto.server.service import Service


def model_routes(service: Service) -> APIRouter:
    router = APIRouter()

    async def card(name: str) -> ModelCard:
        info = await service.model.info()
        return ModelCard(id=name, created=service.created, max_model_tokens=info.max_model_tokens)

    @router.get("/v1/models", tags=["models"], summary="List the models")
    async def list_models() -> ModelList:
        """Every name that a request may use. They all mean the one model that is served."""
        return ModelList(data=[await card(name) for name in service.accepted_names])

    # A model's name may contain slashes.
    @router.get(
        "/v1/models/{model:path}", tags=["models"], summary="Show one model", responses={404: ERROR_RESPONSES[404]}
    )
    async def retrieve_model(model: str) -> ModelCard:
        """The same as its entry in the list."""
        service.check_name(model)
        return await card(model)

    @router.get("/health", tags=["health"], summary="Is the server up?", responses={503: ERROR_RESPONSES[503]})
    async def health() -> Health:
        """Answers 200 as long as the engine takes requests, 503 once it has stopped."""
        return Health(model=(await service.model.info()).name)

    return router
