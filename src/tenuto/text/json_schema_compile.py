"""A schema in normal form to llguidance; where the library refuses it, the place inside that it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from llguidance import LLMatcher, LLParserLimits

from tenuto.text.json_schema_keywords import DEFINITIONS

_MAX_LOOKS = 300  # at parts of a refused schema
_MAX_RELAXED = 10


@dataclass(frozen=True)
class Fault:
    """`steps`: the keys and indices from the root to the innermost part that is refused on its own."""

    steps: tuple[str | int, ...]
    reason: str

    def __str__(self) -> str:
        return f"schema at {self.path()}: {self.reason}"

    def path(self) -> str:
        return "/".join(["#", *(str(step)[:100] for step in self.steps)])


def library_fault(schema: Mapping[str, Any]) -> Fault | None:
    """What llguidance has against a schema in normal form, if anything."""
    reason = _reason(schema)
    if not reason:
        return None
    steps: tuple[str | int, ...] = ()
    node, looks = schema, 0
    definitions = {key: schema[key] for key in DEFINITIONS if key in schema}
    while True:
        for inside, part in _parts(node):
            looks += 1
            inner = _reason({**part, **definitions}) if looks <= _MAX_LOOKS and isinstance(part, dict) else ""
            if inner:
                steps, node, reason = (*steps, *inside), part, inner
                break
        else:
            return Fault(steps, reason)


def relax_faults(schema: dict[str, Any]) -> tuple[dict[str, Any], list[Fault]]:
    """Leaves out of a schema in normal form whatever the library refuses, down to the type."""
    faults: list[Fault] = []
    while (fault := library_fault(schema)) is not None:
        faults.append(fault)
        if not fault.steps or len(faults) > _MAX_RELAXED:
            return {"type": "object"}, faults
        schema = json.loads(json.dumps(schema))
        holder: Any = schema
        for step in fault.steps[:-1]:
            holder = holder[step]
        node = holder[fault.steps[-1]]
        holder[fault.steps[-1]] = {"type": node["type"]} if "type" in node and node.keys() != {"type"} else True
    return schema, faults


def _reason(schema: Mapping[str, Any]) -> str:
    grammar = LLMatcher.grammar_from_json_schema(json.dumps(schema))
    is_error, messages = LLMatcher.validate_grammar_with_warnings(grammar, limits=LLParserLimits())
    return re.split(r"\n\s*<|\n", str(messages[0]))[0].strip()[:300] if is_error else ""


def _parts(node: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    for key in ("properties", "patternProperties"):
        for name, part in node.get(key, {}).items():
            yield (key, name), part
    for key in ("items", "additionalProperties"):
        if key in node:
            yield (key,), node[key]
    for key in ("prefixItems", "anyOf", "allOf"):
        for index, part in enumerate(node.get(key, ())):
            yield (key, index), part
