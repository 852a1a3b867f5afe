"""The grammar of the declared tools' calls, as Lark text for llguidance.

White space is fixed to the call format's own separators, so that nearly all of a call but its values is forced.
JSON Schema is put into the form that llguidance enforces; only where a string must be copied from the conversation,
which JSON Schema cannot say, objects, arrays and unions on the way to it are spelled out here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tenuto.errors import GrammarError
from tenuto.protocol.grammar import Relaxation
from tenuto.protocol.messages import COPIED, ToolSpec
from tenuto.text import copied
from tenuto.text.json_schema import normalise
from tenuto.text.json_schema_compile import library_fault, relax_faults
from tenuto.text.lark_text import literal

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

ITEM_SEPARATOR, KEY_SEPARATOR = ", ", ": "
COMPACT: JsonCompileOptions = {
    "whitespace_flexible": False,
    "item_separator": ITEM_SEPARATOR,
    "key_separator": KEY_SEPARATOR,
    # Every character has one spelling: a name with \\u0061 in it would get past what is said of the name "a".
    "json_allowed_escapes": 'nrbtf\\"',
}

_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "deprecated", "$comment", COPIED})
_MAX_DEPTH = 40
_MAX_VALUES = 2_000  # of one tool, around copied strings: references may multiply a small schema without end


def key_text(key: str) -> str:
    return json.dumps(key, ensure_ascii=False) + KEY_SEPARATOR


class ToolGrammar:
    """Collects the rules for the calls of some tools.

    Args:
        copied_from: the texts that copied strings may come from.
    """

    def __init__(self, copied_from: Sequence[str]) -> None:
        self._copied_from = copied_from
        self._rules: list[str] = []
        self._shared: set[str] = set()
        self._copies: dict[tuple[copied.CopyRule, bool], str | None] = {}
        self.relaxed: list[Relaxation] = []  # what of the tools' schemas it does not hold

    def text(self) -> str:
        """All rules added so far."""
        return "\n".join(self._rules)

    def add_tool(self, index: int, tool: ToolSpec) -> str | None:
        """Adds the rules of a tool's arguments; returns the rule's name, None if nothing can be copied into them.

        Raises:
            GrammarError: the schema says something that no grammar can hold.
        """
        try:
            return ToolArguments(self, f"t{index}", tool).add()
        except GrammarError as error:
            raise GrammarError(f"tool {tool.name!r}: {error}") from error

    def rule(self, name: str, body: str) -> str:
        self._rules.append(f"{name}: {body}")
        return name

    def share(self, name: str, rules: Iterable[tuple[str, str]]) -> None:
        """Add rules that several tools use under one name, once."""
        if name not in self._shared:
            self._shared.add(name)
            for one, body in rules:
                self.rule(one, body)

    def copy(self, rule: copied.CopyRule, quoted: bool = True) -> str | None:
        """The rule's name of a copied string; None if nothing can be copied. Each kind is one rule.

        Args:
            quoted: as a JSON string. Otherwise as it is, for formats that write strings without quotes.
        """
        kind = (rule, quoted)
        if kind not in self._copies:
            number = len(self._copies)
            body = copied.body(f"COPY_{number}", self._copied_from, rule, quoted)
            if body is not None and body[1]:
                self._rules.append(body[1])
            self._copies[kind] = None if body is None else self.rule(f"copy_{number}", body[0])
        return self._copies[kind]

    def relax(self, tool: ToolSpec, path: str, reason: str) -> None:
        """Leave something out of a tool's schema. Raises GrammarError if the tool is strict."""
        if tool.strict:
            raise GrammarError(f"{path}: {reason}")
        self.relaxed.append(Relaxation(path=f"{tool.name}: {path}", reason=reason))


class ToolArguments:
    """The rules of one tool's arguments. A body of None means: nothing can fill this value."""

    def __init__(self, grammar: ToolGrammar, prefix: str, tool: ToolSpec) -> None:
        self._grammar = grammar
        self._prefix = prefix
        self._tool, self._strict = tool.name, tool.strict
        self._schema: Mapping[str, Any] = tool.parameters or {"type": "object", "properties": {}}
        self._num_rules = self._num_values = 0

    def add(self) -> str | None:
        body = self._value(self._schema, "the parameters", 0)
        return None if body is None else self._grammar.rule(self._prefix, body)

    def value(self, schema: Any, path: str) -> str | None:
        """The body of a value's rule, as JSON. Raises GrammarError if a strict tool's schema cannot be held."""
        return self._value(schema, path, 0)

    def rule(self, body: str) -> str:
        self._num_rules += 1
        return self._grammar.rule(f"{self._prefix}_{self._num_rules}", body)

    def _value(self, schema: Any, path: str, depth: int) -> str | None:
        self._num_values += 1
        if self._num_values > _MAX_VALUES:
            raise GrammarError(f"{path}: around copied strings it has more than {_MAX_VALUES} values; make it simpler")
        if depth > _MAX_DEPTH:
            raise GrammarError(f"{path} is nested more than {_MAX_DEPTH} deep, or contains itself")
        if not self._has_copies(schema, set()):
            return self._json(schema, path)
        if not isinstance(schema, dict):
            raise GrammarError(f"{path} holds a copied string and must be a schema object, not a list")
        if schema.get(COPIED):
            return self._copy(schema, path)
        if "$ref" in schema:
            return self._value(self._resolve(schema["$ref"]), path, depth + 1)
        self._refuse_others(schema, path)
        if "anyOf" in schema or "oneOf" in schema:
            options = schema["anyOf"] if "anyOf" in schema else schema["oneOf"]
            bodies = [self._value(option, path, depth + 1) for option in options]
            known = [self.rule(body) for body in bodies if body is not None]
            return " | ".join(known) if known else None
        if "properties" in schema:
            return self._object(schema, path, depth)
        if "items" in schema:
            return self._array(schema, path, depth)
        raise GrammarError(f"{path} holds a copied string, but is no object with properties, array or union")

    def _copy(self, schema: Mapping[str, Any], path: str) -> str | None:
        rule = copied.CopyRule.from_schema(schema, path)
        try:
            return self._grammar.copy(rule)
        except GrammarError as error:
            raise GrammarError(f"{path}: its pattern {error}") from error

    def _refuse_others(self, schema: Mapping[str, Any], path: str) -> None:
        """Around a copied string only the plain shapes are known; silently dropping a condition would be worse."""
        known = {"type", "properties", "required", "additionalProperties", "items", "minItems", "maxItems"}
        others = schema.keys() - known - {"anyOf", "oneOf", "$defs", "definitions", "$schema"} - _ANNOTATIONS
        if others:
            raise GrammarError(f"{path} holds a copied string and cannot use {', '.join(sorted(others))} as well")

    def _json(self, schema: Any, path: str) -> str:
        """A value without copied strings. Raises GrammarError if the tool is strict."""
        at = "#" if schema is self._schema else path
        try:
            normal = normalise(_closed(schema), strict=self._strict, root=_closed(self._schema), at=at)
            held, relaxed = normal.schema, list(normal.relaxed)
        except GrammarError as error:
            if self._strict:
                raise
            held, relaxed = {"type": "object"} if at == "#" else {}, [Relaxation(path=at, reason=str(error))]
        if self._strict and (fault := library_fault(held)) is not None:
            raise GrammarError(f"{path}: {fault}")
        held, faults = relax_faults(held)
        relaxed += [Relaxation(path=fault.path().replace("#", at, 1), reason=fault.reason) for fault in faults]
        self._grammar.relaxed += [Relaxation(path=f"{self._tool}: {r.path}", reason=r.reason) for r in relaxed]
        return self.rule(inline_schema(held))

    def _object(self, schema: Mapping[str, Any], path: str, depth: int) -> str | None:
        """Properties in declared order; the optional ones may be left out, and no others come in."""
        required = set(schema.get("required", ()))
        missing = required - schema["properties"].keys()
        if missing:
            raise GrammarError(f"{path} requires {', '.join(sorted(missing))}, which its properties do not declare")
        pairs: list[tuple[str, bool]] = []
        for key, value in schema["properties"].items():
            body = self._value(value, f"{path}.{key}", depth + 1)
            if body is not None:
                pairs.append((f"{literal(key_text(key))} ({body})", key in required))
            elif key in required:
                return None
        return f'"{{" {self.separated(pairs)} "}}"'

    def separated(self, pairs: Sequence[tuple[str, bool]]) -> str:
        """A rule of bodies in this order, separators between them; those that are not required may be left out.

        Two chains of rules: before the first one is there, and after it, when a separator stands in front.
        """
        first, later = '""', '""'
        for body, is_required in reversed(pairs):
            pair = self.rule(body)
            skip_first, skip_later = ("", "") if is_required else (f" | {first}", f" | {later}")
            first = self.rule(f"{pair} {later}{skip_first}")
            later = self.rule(f"{literal(ITEM_SEPARATOR)} {pair} {later}{skip_later}")
        return first

    def _array(self, schema: Mapping[str, Any], path: str, depth: int) -> str | None:
        item = self._value(schema["items"], f"{path}[]", depth + 1)
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        if item is None or most == 0:
            return None if least else '"[" "]"'
        one = self.rule(item)
        more = f"{{{max(least - 1, 0)},{'' if most is None else most - 1}}}"
        filled = f'"[" {one} ({literal(ITEM_SEPARATOR)} {one}){more} "]"'
        return filled if least else f'{filled} | "[" "]"'

    def _resolve(self, reference: Any) -> Any:
        """What a local reference (a JSON pointer from the root) points to; None if it points to nothing here."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        target: Any = self._schema
        for part in reference.removeprefix("#").split("/")[1:]:
            target = target.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(target, dict) else None
        return target

    def _has_copies(self, schema: Any, visited: set[str]) -> bool:
        if isinstance(schema, list):
            return any(self._has_copies(item, visited) for item in schema)
        if not isinstance(schema, dict):
            return False
        if schema.get(COPIED):
            return True
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference not in visited:
            # A definition counts where it is used; once looked into, it need not be again.
            visited.add(reference)
            if self._has_copies(self._resolve(reference), visited):
                return True
        inside = {k: v for k, v in schema.items() if k not in ("$defs", "definitions", "default", "examples", "const")}
        return any(self._has_copies(value, visited) for value in inside.values())


def inline_schema(schema: Mapping[str, Any]) -> str:
    """A schema in normal form as part of a rule."""
    return "%json " + json.dumps({**schema, "x-guidance": COMPACT}, ensure_ascii=False)


def _closed(schema: Any) -> Any:
    """The schema with objects closed to properties they do not declare, unless they say otherwise.

    JSON Schema leaves objects open, which would let a model invent arguments.
    """
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("properties", "$defs", "definitions") and isinstance(value, dict):
            closed[key] = {name: _closed(inner) for name, inner in value.items()}
        elif key in ("enum", "const", "default", "examples", "required"):
            closed[key] = value
        elif key != COPIED:
            closed[key] = _closed(value)
    if isinstance(closed.get("properties"), dict) and not schema.keys() & {"allOf", "anyOf", "oneOf", "$ref"}:
        closed.setdefault("additionalProperties", False)
    return closed
