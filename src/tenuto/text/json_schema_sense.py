"""What a schema in normal form means, as far as needed: which exclude one another, and which have finite values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_ALL_TYPES = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
_PREFIX = "#/$defs/"


@dataclass
class _Facts:
    """What is surely true of every value of a schema."""

    types: frozenset[str] = _ALL_TYPES
    values: frozenset[str] | None = None  # the only ones there are, as canonical JSON
    required: dict[str, Any] = field(default_factory=dict)  # of every object: these names, with these schemas

    def and_(self, other: _Facts) -> _Facts:
        known = [v for v in (self.values, other.values) if v is not None]
        values = None if not known else known[0] if len(known) == 1 else known[0] & known[1]
        required = {**self.required}
        for name, one in other.required.items():
            required[name] = {"allOf": [required[name], one]} if name in required else one
        return _Facts(self.types & other.types, values, required)


def are_disjoint(one: Any, other: Any, both: Any, definitions: Mapping[str, Any]) -> bool:
    """Whether two schemas surely share no value that `both`, a schema that holds at the same time, allows."""
    beside = {k: v for k, v in both.items() if k != "anyOf"}
    return _disjoint({"allOf": [beside, one]}, {"allOf": [beside, other]}, definitions, 0)


def _disjoint(one: Any, other: Any, definitions: Mapping[str, Any], depth: int) -> bool:
    if depth > 4:
        return False
    left, right = _facts(one, definitions, frozenset()), _facts(other, definitions, frozenset())
    if not left.types & right.types:
        return True
    if left.values is not None and right.values is not None:
        return not left.values & right.values
    for few, many in ((left, right), (right, left)):
        if few.values is not None and not any(_types_of(json.loads(v)) & many.types for v in few.values):
            return True
    if left.types | right.types != {"object"}:
        return False
    shared = left.required.keys() & right.required.keys()
    return any(_disjoint(left.required[n], right.required[n], definitions, depth + 1) for n in shared)


def _facts(node: Any, definitions: Mapping[str, Any], passed: frozenset[str]) -> _Facts:
    if node is False:
        return _Facts(frozenset(), frozenset())
    if node is True:
        return _Facts()
    facts = _Facts()
    if "type" in node:
        named = {node["type"]} if isinstance(node["type"], str) else set(node["type"])
        facts.types = frozenset(named | ({"integer"} if "number" in named else set()))
    listed = [node["const"]] if "const" in node else node.get("enum")
    if listed is not None:
        types = frozenset().union(*map(_types_of, listed))
        facts = facts.and_(_Facts(types, frozenset(map(_canonical, listed))))
    properties = node.get("properties", {})
    facts.required = {name: properties[name] for name in node.get("required", ()) if name in properties}
    for part in node.get("allOf", ()):
        facts = facts.and_(_facts(part, definitions, passed))
    name = node.get("$ref", "").removeprefix(_PREFIX)
    if name and name not in passed:
        facts = facts.and_(_facts(definitions[name], definitions, passed | {name}))
    if "anyOf" in node:
        options = [_facts(option, definitions, passed) for option in node["anyOf"]]
        values = [o.values for o in options]
        known = None if None in values else frozenset().union(*(v for v in values if v is not None))
        facts = facts.and_(_Facts(frozenset().union(*(o.types for o in options)), known))
    return facts


def _types_of(value: Any) -> frozenset[str]:
    match value:
        case None:
            return frozenset({"null"})
        case bool():
            return frozenset({"boolean"})
        case int() | float():
            return frozenset({"number", "integer"} if float(value).is_integer() else {"number"})
        case str():
            return frozenset({"string"})
        case list():
            return frozenset({"array"})
        case _:
            return frozenset({"object"})


def _canonical(value: Any) -> str:
    """Equal for equal values, as JSON Schema compares them: 1 is 1.0, true is not 1."""
    return json.dumps(_plain(value), sort_keys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return {k: _plain(v) for k, v in value.items()} if isinstance(value, dict) else value


def bare_cycle(definitions: Mapping[str, Any]) -> str | None:
    """A definition that refers to itself with nothing in between, so that it says nothing of the value, if any."""
    done: set[str] = set()

    def follow(node: Any, open_: tuple[str, ...]) -> str | None:
        if isinstance(node, bool):
            return None
        name: str = node.get("$ref", "").removeprefix(_PREFIX)
        if name in open_:
            return name
        inside = [*node.get("allOf", ()), *node.get("anyOf", ())]
        found = next((cycle for part in inside if (cycle := follow(part, open_)) is not None), None)
        if found is None and name and name not in done:
            found = follow(definitions[name], (*open_, name))
            done.add(name)
        return found

    cycles = (follow(one, (name,)) for name, one in definitions.items())
    return next((cycle for cycle in cycles if cycle is not None), None)


def prune_endless(definitions: dict[str, Any], root: Any) -> tuple[dict[str, Any], Any]:
    """The same schemas, with false where no finite value exists, e.g. for a tree whose every node needs another.

    A generation that enters such a schema could never end. The least fixed point of "has a finite value".
    """
    finite: set[str] = set()
    while new := {n for n, one in definitions.items() if n not in finite and _is_finite(one, finite)}:
        finite |= new
    return {name: _pruned(one, finite) for name, one in definitions.items()}, _pruned(root, finite)


def _is_finite(node: Any, known: set[str]) -> bool:
    if isinstance(node, bool):
        return node
    if "$ref" in node and node["$ref"].removeprefix(_PREFIX) not in known:
        return False
    if not all(_is_finite(part, known) for part in node.get("allOf", ())):
        return False
    if "anyOf" in node and not any(_is_finite(option, known) for option in node["anyOf"]):
        return False
    if "const" in node or "enum" in node:
        return True
    named = node.get("type", "string")
    types = {named} if isinstance(named, str) else set(named)
    return (
        bool(types - {"object", "array"})
        or ("object" in types and _has_finite_object(node, known))
        or ("array" in types and _has_finite_array(node, known))
    )


def _has_finite_object(node: Any, known: set[str]) -> bool:
    properties = node.get("properties", {})
    other = True if "patternProperties" in node else node.get("additionalProperties", True)
    return all(_is_finite(properties.get(name, other), known) for name in node.get("required", ()))


def _has_finite_array(node: Any, known: set[str]) -> bool:
    least, prefix = node.get("minItems", 0), node.get("prefixItems", [])
    needed = prefix[:least] + ([node.get("items", True)] if least > len(prefix) else [])
    return all(_is_finite(item, known) for item in needed)


def _pruned(node: Any, finite: set[str]) -> Any:
    if isinstance(node, bool):
        return node
    if not _is_finite(node, finite):
        return False
    kept = dict(node)
    for key in ("properties", "patternProperties"):
        if key in kept:
            kept[key] = {name: _pruned(one, finite) for name, one in kept[key].items()}
    for key in ("items", "additionalProperties"):
        if key in kept:
            kept[key] = _pruned(kept[key], finite)
    for key in ("prefixItems", "allOf"):
        if key in kept:
            kept[key] = [_pruned(one, finite) for one in kept[key]]
    if "anyOf" in kept:
        kept["anyOf"] = [option for one in kept["anyOf"] if (option := _pruned(one, finite)) is not False]
    return kept
