"""Tool schemas that are small to write and endless to follow."""

from __future__ import annotations

from typing import Any

import pytest

from tenuto.errors import GrammarError
from tenuto.protocol.messages import COPIED, ToolSpec
from tenuto.text.tool_format import HermesFormat


def grammar(schema: dict[str, Any]) -> str:
    tool = ToolSpec(name="f", description="", parameters=schema, strict=True)
    return HermesFormat().grammar([tool], "auto", True, ["北京 today"]).source


def doubling(levels: int, last: dict[str, Any]) -> dict[str, Any]:
    """Each definition uses the next one twice."""
    definitions: dict[str, Any] = {
        f"d{i}": {"type": "object", "properties": {k: {"$ref": f"#/$defs/d{i + 1}"} for k in "lr"}}
        for i in range(levels)
    }
    return {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {**definitions, f"d{levels}": last}}


def test_references_that_double_are_followed_once() -> None:
    assert "%json" in grammar(doubling(60, {"type": "string"}))


@pytest.mark.parametrize("last", [{"type": "string", COPIED: True}, {"type": "string", COPIED: True, "pattern": "z+"}])
def test_references_that_double_around_copied_strings_are_refused(last: dict[str, Any]) -> None:
    with pytest.raises(GrammarError, match="more than 2000 values"):
        grammar(doubling(19, last))


WORDS = [f"w{chr(97 + i)}{chr(122 - i)}" for i in range(26)]
CONTAINS = [{"type": "string", "pattern": f".*{word}.*"} for word in WORDS]
UNIONS = [{"anyOf": [{"const": f"{word}{i}"} for i in range(3)]} for word in WORDS]
CHAIN = {
    f"d{i}": {**one, "$ref": f"#/$defs/d{i + 1}"} if i < 25 else {"type": "string"} for i, one in enumerate(CONTAINS)
}


@pytest.mark.parametrize(
    "value",
    [{"allOf": CONTAINS}, {"allOf": UNIONS}, {"$ref": "#/$defs/d0"}],
    ids=["patterns", "unions", "chain of references"],
)
def test_conditions_that_multiply_are_refused(value: dict[str, Any]) -> None:
    with pytest.raises(GrammarError, match="conditions"):
        grammar({"type": "object", "properties": {"a": value}, "$defs": CHAIN if "$ref" in value else {}})


def test_a_reference_with_only_annotations_joins_nothing() -> None:
    """As generators of schemas write each field of a class of its own."""
    fields = {f"字段{i}": {"allOf": [{"$ref": "#/$defs/City"}], "description": "a city"} for i in range(40)}
    fields |= {f"f{i}": {"$ref": "#/$defs/City", "description": "another", "default": "x"} for i in range(40)}
    schema = {"type": "object", "properties": fields, "$defs": {"City": {"enum": ["北京", "Oslo", *WORDS]}}}
    assert "%json" in grammar(schema)
