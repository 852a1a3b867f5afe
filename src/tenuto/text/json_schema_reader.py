"""Walks a JSON Schema keyword by keyword and puts it into the normal form that llguidance enforces exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from tenuto.errors import GrammarError
from tenuto.protocol.grammar import Relaxation
from tenuto.text.json_schema_formats import FORMATS
from tenuto.text.json_schema_keywords import keyword
from tenuto.text.json_schema_limits import MAX_DEPTH, Size, TooLarge
from tenuto.text.json_schema_sense import are_disjoint
from tenuto.text.json_schema_values import check_writable, count, decimal_step, number, writable_name
from tenuto.text.regex_syntax import partial_match, whole_match

_TYPES = frozenset({"null", "boolean", "number", "integer", "string", "array", "object"})
_NUMERIC = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_MAX_ONE_OF = 100
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "maxProperties")


def _fault(path: str, why: str) -> GrammarError:
    return GrammarError(f"schema at {path}: {why}")


def _step(path: str, *parts: str) -> str:
    return "/".join([path, *(part.replace("~", "~0").replace("/", "~1")[:100] for part in parts)])


@dataclass
class _Node:
    """One schema object on its way through: what it says, and what is kept of it."""

    given: Mapping[str, Any]
    path: str
    depth: int
    kept: dict[str, Any] = field(default_factory=dict)
    also: list[Any] = field(default_factory=list)  # further schemas that hold at once


class SchemaReader:
    """Reads one schema. `definitions`: the normal form of everything referred to, under names of our own."""

    def __init__(self, schema: Any, strict: bool, root: Any = None, at: str = "#") -> None:
        self._schema = schema
        self._whole = schema if root is None else root
        self.at = at
        self._strict = strict
        self._names: dict[str, str] = {}  # JSON pointer → name among the definitions
        self._pending: list[tuple[str, Any]] = []  # referred to, and not read yet
        self._size = Size()
        self._one_ofs: list[tuple[_Node, list[Any], str]] = []
        self.definitions: dict[str, Any] = {}
        self.relaxed: list[Relaxation] = []

    def root(self) -> Any:
        if not isinstance(self._schema, dict):
            raise GrammarError("a JSON Schema must be an object")
        root = self._read(self._schema, self.at, 0)
        while self._pending:
            pointer, target = self._pending.pop()
            self.definitions[self._names[pointer]] = self._read(target, pointer, 1)
        for node, options, at in self._one_ofs:
            try:
                self._check_one_of(node, options, at)
            except GrammarError as error:
                if self._strict:
                    raise
                self._relax(at, error)
        return root

    def pointer(self, name: str) -> str:
        """Where in the schema a definition comes from."""
        return next(pointer for pointer, known in self._names.items() if known == name)

    def _read(self, given: Any, path: str, depth: int) -> Any:
        """The normal form of a schema: true, false or an object."""
        self._size.add(1)
        if depth > MAX_DEPTH:
            raise TooLarge(f"schema at {path[:300]}: it is nested more than {MAX_DEPTH} deep")
        if isinstance(given, bool):
            return given
        if not isinstance(given, dict):
            error = _fault(path, f"a schema is an object, true or false, not {_kind(given)}")
            if self._strict:
                raise error
            self._relax(path, error)
            return True
        node = _Node(given, path, depth)
        for name, value in given.items():
            try:
                self._keyword(node, name, value)
            except GrammarError as error:
                if self._strict or isinstance(error, TooLarge):
                    raise
                self._relax(_step(path, name), error)
                if name == "patternProperties":
                    node.kept.pop("additionalProperties", None)
                    node.given = {k: v for k, v in node.given.items() if k != "additionalProperties"}
        if node.also:
            node.kept.setdefault("allOf", []).extend(node.also)
        return node.kept

    def _relax(self, path: str, error: GrammarError) -> None:
        self.relaxed.append(Relaxation(path=path, reason=str(error).removeprefix(f"schema at {path}: ")))

    def _keyword(self, node: _Node, name: str, value: Any) -> None:
        known = keyword(name)
        at = _step(node.path, name)
        if name == "x-tenuto-copied":
            raise _fault(at, f"only strings among a tool's arguments can be copied; {name} says nothing here")
        if known.treatment == "annotation":
            if name == "$id" and node.depth:
                raise _fault(at, "keyword `$id` is supported at the root only")
            return
        if known.treatment == "refused":
            why = f" ({known.note})" if known.note else ""
            raise _fault(at, f"keyword `{name[:100]}` is not supported{why}")
        if (handler := _HANDLERS.get(name)) is not None:
            handler(self, node, value, at)

    # Any value

    def _type(self, node: _Node, value: Any, at: str) -> None:
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list) or not names or not all(isinstance(n, str) and n in _TYPES for n in names):
            raise _fault(at, f"`type` is one or more of {', '.join(sorted(_TYPES))}")
        kept = [n for n in dict.fromkeys(names) if n != "integer" or "number" not in names]
        node.kept["type"] = kept[0] if len(kept) == 1 else kept

    def _enum(self, node: _Node, value: Any, at: str) -> None:
        if not isinstance(value, list) or not value:
            raise _fault(at, "`enum` is a list of at least one value")
        for index, one in enumerate(value):
            check_writable(one, _step(at, str(index)))
        self._size.add_values(value)
        node.kept["enum"] = value

    def _const(self, node: _Node, value: Any, at: str) -> None:
        check_writable(value, at)
        self._size.add_values([value])
        node.kept["const"] = value

    def _options(self, node: _Node, value: Any, at: str) -> list[Any]:
        if not isinstance(value, list) or not value:
            raise _fault(at, "a list of at least one schema is needed")
        return [self._read(one, _step(at, str(i)), node.depth + 1) for i, one in enumerate(value)]

    def _all_of(self, node: _Node, value: Any, at: str) -> None:
        node.also += [option for option in self._options(node, value, at) if option is not True and option != {}]

    def _any_of(self, node: _Node, value: Any, at: str) -> None:
        node.kept["anyOf"] = self._options(node, value, at)

    def _one_of(self, node: _Node, value: Any, at: str) -> None:
        options = self._options(node, value, at)
        if len(options) > _MAX_ONE_OF:
            raise _fault(at, f"`oneOf` has {len(options)} options, more than {_MAX_ONE_OF}")
        node.also.append({"anyOf": options})
        self._one_ofs.append((node, options, at))

    def _check_one_of(self, node: _Node, options: list[Any], at: str) -> None:
        """Once all definitions are known."""
        beside = {key: value for key, value in node.kept.items() if key != "allOf"}
        for i, one in enumerate(options):
            for j, other in enumerate(options[:i]):
                if not are_disjoint(one, other, beside, self.definitions):
                    raise _fault(
                        at,
                        f"options {j} and {i} of `oneOf` are not known to exclude one another (by type, const or enum, "
                        "or a required property with different values); use anyOf, or tell them apart",
                    )

    def _ref(self, node: _Node, value: Any, at: str) -> None:
        if not isinstance(value, str) or not value.startswith("#") or not value.isprintable():
            raise _fault(at, "`$ref` is supported within the schema only: # or #/..., a JSON pointer")
        if value != "#" and not value.startswith("#/"):
            raise _fault(at, f"`$ref` to the anchor {value[:100]!r} is not supported; use a JSON pointer, #/...")
        if value not in self._names:
            self._pending.append((value, self._resolve(value, at)))
            self._names[value] = f"d{len(self._names)}"
        node.kept["$ref"] = f"#/$defs/{self._names[value]}"

    def _resolve(self, pointer: str, at: str) -> Any:
        target = self._whole
        for part in unquote(pointer).split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(target, dict) and key in target:
                target = target[key]
            elif isinstance(target, list) and key.isascii() and key.isdigit() and int(key) < len(target):
                target = target[int(key)]
            else:
                raise _fault(at, f"`$ref` points to {pointer[:200]}, which is not in the schema")
        return target

    # Strings

    def _pattern(self, node: _Node, value: Any, at: str) -> None:
        if not isinstance(value, str):
            raise _fault(at, "`pattern` is a regular expression, as a string")
        try:
            self._match(node, partial_match(value))
        except GrammarError as error:
            raise _fault(at, str(error)) from error

    def _format(self, node: _Node, value: Any, at: str) -> None:
        known = FORMATS.get(value) if isinstance(value, str) else None
        if known is None:
            raise _fault(at, f"format {str(value)[:100]!r} is not supported; these are: {', '.join(FORMATS)}")
        if known.max_length is not None:
            node.also.append({"maxLength": known.max_length})
        self._match(node, whole_match(known.pattern))

    def _match(self, node: _Node, expression: str) -> None:
        """A pattern in the library's syntax, beside any other of the same string."""
        anchored = f"^(?:{expression})$"
        if "pattern" in node.kept:
            node.also.append({"pattern": anchored})
        else:
            node.kept["pattern"] = anchored

    # Numbers and counts

    def _number(self, node: _Node, value: Any, at: str) -> None:
        node.kept[at.rpartition("/")[2]] = number(value, at)

    def _multiple(self, node: _Node, value: Any, at: str) -> None:
        node.kept["multipleOf"] = decimal_step(value, at)

    def _count(self, node: _Node, value: Any, at: str) -> None:
        node.kept[at.rpartition("/")[2]] = count(value, at)

    def _min_properties(self, node: _Node, value: Any, at: str) -> None:
        """With free names a second one may repeat the first, so more than one is only asked for by `required`."""
        least = count(value, at)
        required = node.given.get("required")
        asked = len(set(map(str, required))) if isinstance(required, list) else 0
        if least > max(1, asked):
            raise _fault(at, "`minProperties` above 1 is supported only where `required` asks for as many")
        if least > asked:
            node.kept["minProperties"] = least

    # Arrays

    def _items(self, node: _Node, value: Any, at: str) -> None:
        if not isinstance(value, list):
            node.kept["items"] = self._read(value, at, node.depth + 1)
            return
        if "prefixItems" in node.given:
            raise _fault(at, "a list of `items` is draft 7's name of `prefixItems`; both are given")
        self._prefix(node, value, at)
        if "additionalItems" in node.given:
            rest = _step(node.path, "additionalItems")
            node.kept["items"] = self._read(node.given["additionalItems"], rest, node.depth + 1)

    def _prefix(self, node: _Node, value: Any, at: str) -> None:
        if value != []:
            node.kept["prefixItems"] = self._options(node, value, at)

    def _unique(self, node: _Node, value: Any, at: str) -> None:
        if not isinstance(value, bool):
            raise _fault(at, "`uniqueItems` is true or false")
        most = node.given.get("maxItems")
        if value and not (isinstance(most, int) and most <= 1):
            raise _fault(at, "keyword `uniqueItems` is not supported, unless false or beside a `maxItems` of 0 or 1")

    # Objects

    def _properties(self, node: _Node, value: Any, at: str) -> None:
        if not isinstance(value, dict):
            raise _fault(at, f"an object of schemas is needed, not {_kind(value)}")
        kept = {}
        for name, one in value.items():
            writable_name(name, _step(at, name))
            self._size.add(0, len(name))
            kept[name] = self._read(one, _step(at, name), node.depth + 1)
        node.kept["properties"] = {**kept, **node.kept.get("properties", {})}

    def _required(self, node: _Node, value: Any, at: str) -> None:
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise _fault(at, "`required` is a list of names")
        declared = node.given.get("properties")
        for name in value:
            writable_name(name, at)
            if not isinstance(declared, dict) or name not in declared:
                self._size.add(1, len(name))
        if value:
            node.kept["required"] = list(dict.fromkeys(value))

    def _additional(self, node: _Node, value: Any, at: str) -> None:
        if "additionalProperties" in node.given:  # not taken away by a relaxed patternProperties
            node.kept["additionalProperties"] = self._read(node.given["additionalProperties"], at, node.depth + 1)

    def _pattern_properties(self, node: _Node, value: Any, at: str) -> None:
        if not isinstance(value, dict):
            raise _fault(at, f"an object of schemas is needed, not {_kind(value)}")
        kept: dict[str, Any] = {}
        for pattern, one in value.items():
            where = _step(at, pattern)
            try:
                expression = f"^(?:{partial_match(pattern)})$"
            except GrammarError as error:
                raise _fault(where, str(error)) from error
            if expression in kept:
                raise _fault(where, "this pattern matches the same names as another")
            kept[expression] = self._read(one, where, node.depth + 1)
        if kept:
            node.kept["patternProperties"] = kept

    def _names_of(self, node: _Node, value: Any, at: str) -> None:
        """`propertyNames` of a map: the names become its properties, or its pattern."""
        if value is True:
            return
        inside = (
            {k: v for k, v in value.items() if keyword(k).treatment != "annotation"} if isinstance(value, dict) else {}
        )
        inside.pop("type", None)
        if node.given.keys() & {"properties", "patternProperties", "required"} or len(inside) != 1:
            raise _fault(
                at,
                "keyword `propertyNames` is supported only with an enum, const or pattern, and in an object without "
                "properties, patternProperties and required",
            )
        (rule, names), rest = next(iter(inside.items())), node.given.get("additionalProperties", True)
        node.given = {**node.given, "additionalProperties": False}
        if rule == "pattern" and isinstance(names, str):
            self._pattern_properties(node, {names: rest}, at)
        elif rule in ("enum", "const"):
            listed = names if rule == "enum" and isinstance(names, list) else [names]
            self._properties(node, {name: rest for name in listed if isinstance(name, str)}, at)
        else:
            raise _fault(at, f"keyword `propertyNames` is not supported with {rule}")
        node.kept["additionalProperties"] = False


def _kind(value: Any) -> str:
    return {str: "a string", list: "a list", type(None): "null", dict: "an object"}.get(type(value), "a number")


_Handler = Callable[[SchemaReader, _Node, Any, str], None]

_HANDLERS: dict[str, _Handler] = {
    "type": SchemaReader._type,
    "enum": SchemaReader._enum,
    "const": SchemaReader._const,
    "allOf": SchemaReader._all_of,
    "anyOf": SchemaReader._any_of,
    "oneOf": SchemaReader._one_of,
    "$ref": SchemaReader._ref,
    "pattern": SchemaReader._pattern,
    "format": SchemaReader._format,
    "multipleOf": SchemaReader._multiple,
    "minProperties": SchemaReader._min_properties,
    "items": SchemaReader._items,
    "prefixItems": SchemaReader._prefix,
    "uniqueItems": SchemaReader._unique,
    "properties": SchemaReader._properties,
    "required": SchemaReader._required,
    "additionalProperties": SchemaReader._additional,
    "patternProperties": SchemaReader._pattern_properties,
    "propertyNames": SchemaReader._names_of,
    **dict.fromkeys(_NUMERIC, SchemaReader._number),
    **dict.fromkeys(_COUNTS, SchemaReader._count),
}
