"""GET /docs: the API's description as one page, made here from the OpenAPI document.

It loads nothing, from anywhere, and runs no script: it works without a network, and a policy says so to the browser.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader
from markupsafe import Markup, escape

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_CODE = re.compile(r"`([^`\n]+)`")
_REF = re.compile(r"^#/components/schemas/([\w.-]+)$")


def docs_routes(describe: Callable[[], dict[str, Any]]) -> APIRouter:
    """Args:
    describe: the OpenAPI document.
    """
    router = APIRouter()
    pages: list[str] = []  # made when it is first asked for

    @router.get("/docs", include_in_schema=False)
    async def show_docs() -> HTMLResponse:
        if not pages:
            pages.append(docs_page(describe()))
        return HTMLResponse(pages[0], headers={"Content-Security-Policy": _POLICY, "X-Frame-Options": "DENY"})

    return router


def docs_page(document: dict[str, Any]) -> str:
    """The page of an OpenAPI document."""
    environment = Environment(loader=PackageLoader("tenuto.server", "."), autoescape=True, trim_blocks=True)
    environment.filters |= {"prose": _prose, "kind": _kind}
    operations = [
        {"method": method.upper(), "path": path, "id": f"{method}{path}", "body": _body(operation), **operation}
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    schemas = document.get("components", {}).get("schemas", {})
    page = environment.get_template("docs_page.html.jinja")
    return page.render(info=document["info"], operations=operations, schemas=schemas)


def _body(operation: dict[str, Any]) -> dict[str, Any] | None:
    """The schema of the request's body."""
    content = operation.get("requestBody", {}).get("content", {})
    return next((one.get("schema") for one in content.values()), None)


def _prose(text: str | None) -> Markup:
    """Paragraphs, and names between backquotes; everything else stands as it is written."""
    paragraphs = (_CODE.sub(r"<code>\1</code>", str(escape(part))) for part in (text or "").strip().split("\n\n"))
    return Markup("".join(f"<p>{part}</p>" for part in paragraphs if part))  # noqa: S704 - escaped above


def _kind(schema: dict[str, Any] | None) -> Markup:
    """What a value must be, in a few words; other schemas as links."""
    if not schema:
        return Markup("any")
    if (found := _REF.match(schema.get("$ref", ""))) is not None:
        return Markup('<a href="#{0}">{0}</a>').format(found[1])
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return Markup(" | ").join(_kind(one) for one in schema[several])
    if "const" in schema or "enum" in schema:
        return Markup(" | ").join(repr(one) for one in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return Markup("list of ") + _kind(schema.get("items"))
    return Markup("{}").format(schema.get("type", "any"))
