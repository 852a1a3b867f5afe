"""The OpenAPI document: what FastAPI says of the routes, and the schemas that it does not know.

The document is made when it is first asked for: its schemas would be half of what starting a server costs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from fastapi import FastAPI
from pydantic import BaseModel

SCHEMA_REF = "#/components/schemas/{model}"


def json_content(kind: type[BaseModel]) -> dict[str, Any]:
    """JSON of that kind, by its name: `describe` has to be told the kind."""
    return {"application/json": {"schema": {"$ref": SCHEMA_REF.format(model=kind.__name__)}}}


def describe(app: FastAPI, bodies: Iterable[type[BaseModel]], replies: Iterable[type[BaseModel]]) -> None:
    """Corrects the generated description: what routes name in words of their own, and no 422, which is never answered.

    Args:
        bodies: of requests that routes read themselves.
        replies: those that `json_content` names.
    """
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is not None:
            return app.openapi_schema
        described = generate()
        components = described["components"]["schemas"]
        components.update(_schemas(bodies, "validation") | _schemas(replies, "serialization"))
        for name in ("HTTPValidationError", "ValidationError"):
            components.pop(name, None)
        for operations in described["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)
        return described

    app.openapi = openapi  # type: ignore[method-assign]


def _schemas(kinds: Iterable[type[BaseModel]], mode: Literal["validation", "serialization"]) -> dict[str, Any]:
    """Of the kinds and of what they hold, by name."""
    schemas: dict[str, Any] = {}
    for kind in kinds:
        schema = kind.model_json_schema(ref_template=SCHEMA_REF, mode=mode)
        for name, one in {**schema.pop("$defs", {}), kind.__name__: schema}.items():
            assert schemas.setdefault(name, one) == one, f"two bodies describe {name} differently: rename one"
    return schemas
