"""The page /docs: complete, safe, and without anything from anywhere else."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from server_harness import build, call

from tenuto.server.docs_page import docs_page


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            elif name in ("href", "src"):
                self.links.append(value or "")

    def handle_data(self, data: str) -> None:
        self.words += data


def test_every_route_and_field_stands_on_a_page_that_loads_nothing():
    _, app = build([])
    response = call(app, "GET", "/docs")
    assert response.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in response.headers["content-security-policy"]
    page, document = Page(response.text), call(app, "GET", "/openapi.json").json()
    assert not {"script", "link", "img", "iframe", "object", "form"} & set(page.tags)
    assert "@import" not in response.text and "url(" not in response.text
    for path, methods in document["paths"].items():
        for method in methods:
            assert f"{method.upper()} {path}" in page.words
    for name, schema in document["components"]["schemas"].items():
        assert name in page.ids
        assert all(field in page.words for field in schema.get("properties", {}))
    for link in page.links:
        assert link == "openapi.json" or link.removeprefix("#") in page.ids, link
    assert len(set(page.ids)) == len(page.ids)


def test_nothing_that_is_described_becomes_markup():
    evil = "<script>alert(1)</script> `<b>` \"' &"
    ref = {"$ref": "#/components/schemas/S"}
    document = {
        "info": {"title": evil, "version": evil, "description": evil},
        "paths": {
            "/<i>": {
                "post": {
                    "summary": evil,
                    "description": evil,
                    "parameters": [{"name": evil, "in": evil, "schema": {"type": evil}}],
                    "requestBody": {"content": {"application/json": {"schema": ref}}},
                    "responses": {"200": {"description": evil, "content": {evil: {"schema": {"enum": [evil]}}}}},
                }
            }
        },
        "components": {
            "schemas": {
                "S": {"description": evil, "properties": {evil: {"anyOf": [ref, {"type": "array"}, {"const": evil}]}}}
            }
        },
    }
    text = docs_page(document)
    page = Page(text)
    assert not {"script", "b", "i"} & set(page.tags)
    assert "<script>alert(1)</script>" in page.words
    assert re.search(r"<code>&lt;b&gt;</code>", text)
