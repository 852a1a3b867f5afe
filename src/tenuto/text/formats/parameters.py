"""The parameters of a tool, for formats that write each on its own, and strings perhaps without quotes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenuto.protocol.messages import ToolSpec
from tenuto.text.formats.json_text import loads
from tenuto.text.tool_grammar import ToolGrammar

ALL_TYPES = frozenset({"string", "number", "integer", "boolean", "null", "object", "array"})
_MAX_REFERENCES = 16
_MAX_NESTED = 2  # unions in unions that are looked into
MAX_OPTIONS = 50  # of a union that is looked into
_PYTHON_WORDS = {"True": True, "False": False, "None": None}
_HELD_AT_ROOT = frozenset({"type", "properties", "required", "additionalProperties", "$defs", "definitions", "$schema"})
_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "$id", "$comment", "strict"})


def properties_of(tool: ToolSpec) -> Mapping[str, Any]:
    found = tool.parameters.get("properties") if isinstance(tool.parameters, dict) else None
    return found if isinstance(found, dict) else {}


def required_of(rules: ToolGrammar, tool: ToolSpec) -> frozenset[str]:
    """Which parameters must stand. Tells what of the schema around them is not held; GrammarError if it is strict."""
    properties, required = properties_of(tool), tool.parameters.get("required", [])
    required = [key for key in required if isinstance(key, str)] if isinstance(required, list) else []
    others = sorted(tool.parameters.keys() - _HELD_AT_ROOT - _ANNOTATIONS)
    if others:
        rules.relax(tool, "#", f"keywords {', '.join(others)} are not held where parameters are written one by one")
    missing = sorted(set(required) - properties.keys())
    if missing:
        rules.relax(tool, "#/required", f"{', '.join(missing)} are not among the properties")
    return frozenset(required) & properties.keys()


def resolved(schema: Any, root: Any) -> Any:
    """The schema behind local references; None if they lead nowhere."""
    for _ in range(_MAX_REFERENCES):
        if not isinstance(schema, dict) or "$ref" not in schema:
            return schema
        reference = schema["$ref"]
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        schema = root
        for part in reference.removeprefix("#").split("/")[1:]:
            schema = schema.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(schema, dict) else None
    return None


def types_of(schema: Any, root: Any, depth: int = 0) -> frozenset[str]:
    """The JSON types that may fit a schema; all of them where it does not say."""
    schema = resolved(schema, root)
    if not isinstance(schema, dict) or depth > _MAX_NESTED:
        return ALL_TYPES
    given = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(given, list) and given:
        return frozenset(_type(value) for value in given)
    kinds = schema.get("type")
    if isinstance(kinds, str) and kinds in ALL_TYPES:
        return frozenset({kinds})
    if isinstance(kinds, list) and kinds:
        return frozenset(kind for kind in kinds if isinstance(kind, str)) & ALL_TYPES or ALL_TYPES
    options = schema.get("anyOf", schema.get("oneOf"))
    if isinstance(options, list) and 0 < len(options) <= MAX_OPTIONS:
        return frozenset().union(*(types_of(option, root, depth + 1) for option in options))
    return ALL_TYPES


def _type(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    kinds = {str: "string", int: "integer", float: "number", list: "array", dict: "object"}
    return kinds.get(type(value), "null")


def read_value(text: str, types: frozenset[str]) -> Any:
    """A value as it was written: JSON of one of these types, or a string that it is where it is no such thing."""
    if types == {"string"}:
        return text
    stripped = text.strip()
    if stripped in _PYTHON_WORDS:
        value = _PYTHON_WORDS[stripped]
    else:
        value = loads(stripped)
        if value is None and stripped != "null":
            return text
    kind = _type(value)
    fits = kind in types or (kind == "integer" and "number" in types)
    return value if (fits and kind != "string") or "string" not in types else text
