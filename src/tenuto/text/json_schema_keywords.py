"""The keywords of JSON Schema (draft 2020-12, with the older spellings that are still written), and what we do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Keyword:
    """`enforced`: every value written satisfies it. `annotation`: says nothing about values. `refused`: by name."""

    treatment: Literal["enforced", "annotation", "refused"]
    note: str = ""


def _enforced(note: str = "") -> Keyword:
    return Keyword("enforced", note)


_ANNOTATION = Keyword("annotation")


def _refused(note: str = "") -> Keyword:
    return Keyword("refused", note)


DEFINITIONS = ("$defs", "definitions")

KEYWORDS: dict[str, Keyword] = {
    # Core
    "$schema": _ANNOTATION,
    "$comment": _ANNOTATION,
    "$id": Keyword("annotation", "at the root only; elsewhere it would change what references mean"),
    "$defs": _enforced("where it is referred to"),
    "definitions": _enforced("draft 7's name of `$defs`"),
    "$ref": _enforced("within the schema: `#`, `#/...`; also recursive, if a finite value exists"),
    "$anchor": _refused("use a JSON pointer"),
    "$dynamicRef": _refused(),
    "$dynamicAnchor": _refused(),
    "$recursiveRef": _refused("draft 2019-09"),
    "$recursiveAnchor": _refused("draft 2019-09"),
    "$vocabulary": _refused(),
    # Any value
    "type": _enforced(),
    "enum": _enforced(),
    "const": _enforced(),
    "allOf": _enforced("merged; what would multiply too far is refused"),
    "anyOf": _enforced(),
    "oneOf": _enforced(
        "where its options provably exclude one another: by type, by const or enum, or by a required "
        "property with different values"
    ),
    "not": _refused(),
    "if": _refused(),
    "then": _refused(),
    "else": _refused(),
    # Strings
    "minLength": _enforced("in characters"),
    "maxLength": _enforced("in characters"),
    "pattern": _enforced("matches anywhere in the string, unless anchored"),
    "format": _enforced("the formats listed below; others are refused"),
    "contentEncoding": _ANNOTATION,
    "contentMediaType": _ANNOTATION,
    "contentSchema": _ANNOTATION,
    # Numbers
    "minimum": _enforced("up to 2^53 in size"),
    "maximum": _enforced("up to 2^53 in size"),
    "exclusiveMinimum": _enforced("up to 2^53 in size"),
    "exclusiveMaximum": _enforced("up to 2^53 in size"),
    "multipleOf": _enforced("of at most 4 significant digits; one for each value"),
    # Arrays
    "items": _enforced("also draft 7's list, which is `prefixItems`"),
    "prefixItems": _enforced(),
    "additionalItems": _enforced("draft 7, beside a list of `items`"),
    "minItems": _enforced(),
    "maxItems": _enforced(),
    "uniqueItems": _enforced("false, or where at most one item can be"),
    "contains": _refused(),
    "minContains": _refused(),
    "maxContains": _refused(),
    "unevaluatedItems": _refused(),
    # Objects
    "properties": _enforced("written in declared order"),
    "required": _enforced(),
    "additionalProperties": _enforced("written after the declared ones"),
    "patternProperties": _enforced("whose patterns cannot match the same name"),
    "propertyNames": _enforced(
        "an `enum`, `const` or `pattern` of names, in an object without `properties` and `patternProperties`"
    ),
    "minProperties": _enforced("0, 1, or what `required` already asks for"),
    "maxProperties": _enforced("where all declared properties are required; 0 or 1 elsewhere"),
    "dependentRequired": _refused(),
    "dependentSchemas": _refused(),
    "dependencies": _refused("draft 7"),
    "unevaluatedProperties": _refused(),
    # Annotations
    "title": _ANNOTATION,
    "description": _ANNOTATION,
    "default": _ANNOTATION,
    "deprecated": _ANNOTATION,
    "examples": _ANNOTATION,
    "example": Keyword("annotation", "OpenAPI"),
    "readOnly": _ANNOTATION,
    "writeOnly": _ANNOTATION,
    "discriminator": Keyword("annotation", "OpenAPI: what it says must stand in the options too"),
    "externalDocs": Keyword("annotation", "OpenAPI"),
    "nullable": _refused('OpenAPI: add "null" to `type`'),
}


def keyword(name: str) -> Keyword:
    """Of any name: those beginning with `x-` are annotations, others that are not known are refused."""
    return _ANNOTATION if name.startswith("x-") else KEYWORDS.get(name, _refused("it is no keyword of JSON Schema"))
