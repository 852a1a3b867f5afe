"""A schema in normal form to llguidance; where the library refuses it, the place inside that it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from llguidance import LLMatcher, LLParserLimits

from tenuto.text.json_schema_keywords import DEFINITIONS

_MAX_LOOKS = 300  # at parts of a refused schema


def library_fault(schema: Mapping[str, Any]) -> str:
    """What llguidance has against a schema in normal form, with the place; "" if nothing."""
    reason = _reason(schema)
    if not reason:
        return ""
    path, node, looks = "#", schema, 0
    definitions = {key: schema[key] for key in DEFINITIONS if key in schema}
    while True:
        for step, part in _parts(node):
            looks += 1
            inner = _reason({**part, **definitions}) if looks <= _MAX_LOOKS and isinstance(part, dict) else ""
            if inner:
                path, node, reason = f"{path}/{step}", part, inner
                break
        else:
            return f"schema at {path}: {reason}"


def _reason(schema: Mapping[str, Any]) -> str:
    grammar = LLMatcher.grammar_from_json_schema(json.dumps(schema))
    is_error, messages = LLMatcher.validate_grammar_with_warnings(grammar, limits=LLParserLimits())
    return re.split(r"\n\s*<|\n", str(messages[0]))[0].strip()[:300] if is_error else ""


def _parts(node: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key in ("properties", "patternProperties"):
        for name, part in node.get(key, {}).items():
            yield f"{key}/{name[:100]}", part
    for key in ("items", "additionalProperties"):
        if key in node:
            yield key, node[key]
    for key in ("prefixItems", "anyOf", "allOf"):
        for index, part in enumerate(node.get(key, ())):
            yield f"{key}/{index}", part
