"""Random JSON Schemas of what grammars support, and values to go with them. All from one seeded generator."""

from __future__ import annotations

import random
from typing import Any

PATTERNS: list[tuple[str, list[str]]] = [
    (r"^\d{3}-[A-Z]+$", ["123-AB"]),
    ("^[一-龥]{2,4}$", ["北京", "你好世界"]),
    ("a|b", ["xay", "b"]),
    (r"^(foo|bar)+\.txt$", ["foobar.txt"]),
    (r"\.$", ["end."]),
    (r"^[^\s@]+@example\.org$", ["a@example.org"]),
    ("^x?y*z{2}$", ["zz", "xyyzz"]),
    (r'["\\]', ['a"b', "\\"]),
    ("^(?:ab?c|d)$", ["ac", "d"]),
    ("é+", ["café"]),
]
FORMATS: dict[str, list[str]] = {
    "date": ["2024-02-29", "1999-12-31"],
    "time": ["23:59:59Z", "08:00:00.5+02:00"],
    "date-time": ["2024-02-29T00:00:00Z"],
    "duration": ["P1Y2M3DT4H5M6S", "PT5M", "P3W"],
    "email": ["ada@example.org"],
    "hostname": ["example.org", "a-b.c1.cn"],
    "ipv4": ["127.0.0.1", "255.1.20.3"],
    "ipv6": ["::1", "2001:db8::ff00:42:8329", "::ffff:1.2.3.4", "1:2:3:4:5:6:7:8"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000"],
    "uri": ["https://example.org:80/a/b?c=d#e", "urn:isbn:123", "mailto:a@b.cn"],
    "uri-reference": ["../a?b", "//example.org/x", "#top", ""],
    "json-pointer": ["", "/a/0/~1~0"],
    "relative-json-pointer": ["0", "1/a", "2#"],
}
_NAMES = ["a", "b", "名字", "x-1", "long name", 'q"', "tags", "value"]
_TEXTS = ["", "a", "你好", "tab\there", 'say "hi"', "back\\slash", "emoji 😀", "line\nend", "0123456789" * 3, "é/ü"]
_SCALARS: list[Any] = [None, True, False, 0, 1, -7, 2.5, 100, "red", "绿色", "", [1, "x"], {"k": 1}]


def random_schema(rng: random.Random) -> dict[str, Any]:
    """A schema whose definitions may refer to one another."""
    num_defs = rng.choice([0, 0, 1, 2])
    names = [f"d{i}" for i in range(num_defs)]
    schema = _schema(rng, 0, names)
    if names:
        schema = {**schema, rng.choice(["$defs", "definitions"]): {n: _schema(rng, 1, names) for n in names}}
        key = next(k for k in schema if k in ("$defs", "definitions"))
        schema = _rename(schema, f"#/{key}/")
    if rng.random() < 0.2:
        schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "T", "x-note": [1], **schema}
    return schema


def _rename(node: Any, prefix: str) -> Any:
    if isinstance(node, list):
        return [_rename(one, prefix) for one in node]
    if not isinstance(node, dict):
        return node
    return {
        k: v.replace("#/$defs/", prefix) if k == "$ref" and isinstance(v, str) else _rename(v, prefix)
        for k, v in node.items()
    }


def _schema(rng: random.Random, depth: int, names: list[str]) -> dict[str, Any]:
    makers = [_string, _string, _number, _scalar, _array, _object, _object, _union, _both, _reference, _untyped]
    if depth >= 3:
        makers = [_string, _number, _scalar]
    made = rng.choice(makers)(rng, depth, names)
    if rng.random() < 0.1:
        made["description"] = "说明"
    return made


def _string(rng: random.Random, depth: int, names: list[str]) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "string"}
    kind = rng.randrange(6)
    if kind in (1, 5):
        made["minLength"] = rng.randrange(4)
    if kind in (1, 2):
        made["maxLength"] = rng.randrange(4, 12)
    if kind in (3, 5):
        made["pattern"] = rng.choice(PATTERNS)[0]
    if kind == 4:
        made["format"] = rng.choice(list(FORMATS))
        if rng.random() < 0.2:
            made["maxLength"] = 40
    return made


def _number(rng: random.Random, depth: int, names: list[str]) -> dict[str, Any]:
    made: dict[str, Any] = {"type": rng.choice(["integer", "number"])}
    low = rng.choice([-100, -3, 0, 1, 7, -0.5, 0.25, 1000, 12.375])
    if rng.random() < 0.5:
        made[rng.choice(["minimum", "exclusiveMinimum"])] = low
    if rng.random() < 0.5:
        made[rng.choice(["maximum", "exclusiveMaximum"])] = low + rng.choice([2, 10, 99.5, 10000])
    if rng.random() < 0.2:
        made["multipleOf"] = rng.choice([2, 3, 5, 0.5, 0.25, 0.1, 0.01, 7, 1.5])
    return made


def _scalar(rng: random.Random, depth: int, names: list[str]) -> dict[str, Any]:
    kind = rng.randrange(5)
    if kind == 0:
        return {"const": rng.choice(_SCALARS)}
    if kind == 1:
        return {"enum": rng.sample(_SCALARS, rng.randrange(1, 5))}
    if kind == 2:
        return {"enum": rng.sample(_SCALARS, 5), "type": rng.choice(["string", "integer", ["null", "number"]])}
    return {"type": rng.choice(["boolean", "null", ["string", "null"], ["integer", "boolean"]])}


def _array(rng: random.Random, depth: int, names: list[str]) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "array"}
    if rng.random() < 0.7:
        made["items"] = _schema(rng, depth + 1, names) if rng.random() < 0.85 else False
    if rng.random() < 0.3:
        prefix = [_schema(rng, depth + 1, names) for _ in range(rng.randrange(1, 4))]
        if rng.random() < 0.3 and isinstance(made.get("items"), dict):
            made["items"], made["additionalItems"] = prefix, made["items"]
            return _as_prefix(rng, made)
        made["prefixItems"] = prefix
    if rng.random() < 0.4:
        made["minItems"] = rng.randrange(3)
    if rng.random() < 0.4:
        made["maxItems"] = rng.randrange(2, 5)
    return made


def _as_prefix(rng: random.Random, made: dict[str, Any]) -> dict[str, Any]:
    """Draft 7's spelling is read by us; the validator of 2020-12 reads the newer one, so both tests use that."""
    return {"type": "array", "prefixItems": made["items"], "items": made["additionalItems"]}


def _object(rng: random.Random, depth: int, names: list[str]) -> dict[str, Any]:
    chosen = rng.sample(_NAMES, rng.randrange(4))
    made: dict[str, Any] = {"type": "object"}
    if chosen:
        made["properties"] = {name: _schema(rng, depth + 1, names) for name in chosen}
        made["required"] = [name for name in chosen if rng.random() < 0.6]
    if rng.random() < 0.15:
        made.setdefault("required", []).append("extra")
    if rng.random() < 0.7:
        made["additionalProperties"] = rng.choice([False, False, True, {"type": "integer"}, {"type": "string"}])
    if rng.random() < 0.15:
        made["patternProperties"] = {"^p_": _schema(rng, depth + 1, names)}
        if rng.random() < 0.5:
            made["patternProperties"]["^[qr]_"] = {"type": "null"}
    if rng.random() < 0.1:
        made["minProperties"] = rng.randrange(3)
    if rng.random() < 0.1:
        made["maxProperties"] = rng.randrange(1, 5)
    if rng.random() < 0.1 and not made.keys() & {"properties", "patternProperties", "required"}:
        made["propertyNames"] = rng.choice([{"pattern": "^[a-c]+$"}, {"enum": ["un", "deux", "三"]}])
    return made


def _union(rng: random.Random, depth: int, names: list[str]) -> dict[str, Any]:
    if rng.random() < 0.5:
        return {"anyOf": [_schema(rng, depth + 1, names) for _ in range(rng.randrange(1, 4))]}
    if rng.random() < 0.5:
        return {"oneOf": [{"type": "string", "minLength": 1}, {"type": "integer"}, _array(rng, depth + 1, names)]}
    options = []
    for tag in rng.sample(["cat", "dog", "鸟"], 2):
        extra = _schema(rng, depth + 1, names)
        options.append({"type": "object", "properties": {"kind": {"const": tag}, tag: extra}, "required": ["kind"]})
    return {"oneOf": options}


def _both(rng: random.Random, depth: int, names: list[str]) -> dict[str, Any]:
    """Conditions that hold at once, of a kind that can be met together."""
    kind = rng.randrange(5)
    if kind == 0:
        return {"allOf": [_object(rng, depth + 1, names), {"type": "object", "properties": {"b": {"type": "null"}}}]}
    if kind == 1:
        return {"allOf": [{"type": "integer", "minimum": 3}, _number(rng, depth, names)]}
    if kind == 2:
        return {"type": "string", "allOf": [{"minLength": 2}, {"pattern": rng.choice(PATTERNS)[0]}, {"maxLength": 20}]}
    if kind == 3:
        return {
            "type": ["string", "integer"],
            "anyOf": [{"maxLength": 3, "minimum": 5}, {"pattern": "^x", "maximum": 2}],
        }
    return {"allOf": [_schema(rng, depth + 1, names), _schema(rng, depth + 1, names)]}


def _reference(rng: random.Random, depth: int, names: list[str]) -> dict[str, Any]:
    if not names:
        return {"type": "object", "properties": {"next": {"$ref": "#"}, "v": {"type": "integer"}}, "required": ["v"]}
    made: dict[str, Any] = {"$ref": f"#/$defs/{rng.choice(names)}"}
    if rng.random() < 0.2:
        made["description"] = "beside"
    return made


def _untyped(rng: random.Random, depth: int, names: list[str]) -> dict[str, Any]:
    made = {
        k: v
        for part in rng.sample([_string, _number, _array, _object], 2)
        for k, v in part(rng, depth + 1, names).items()
    }
    made.pop("type")
    return made


def random_value(schema: Any, root: dict[str, Any], rng: random.Random, depth: int = 0) -> Any:
    """A value that probably satisfies the schema; objects in the order that grammars write. A validator decides."""
    if isinstance(schema, bool) or depth > 12:
        return rng.choice(_SCALARS)
    if "$ref" in schema:
        target: Any = root
        for part in schema["$ref"].split("/")[1:]:
            target = target[part]
        return random_value(target, root, rng, depth + 1)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return rng.choice(schema["enum"])
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return random_value(rng.choice(schema[key]), root, rng, depth + 1)
    named = schema.get("type", ["string", "integer", "array", "object"])
    kind = rng.choice(named) if isinstance(named, list) else named
    if kind == "object":
        return _random_object(schema, root, rng, depth)
    if kind == "array":
        least, most = schema.get("minItems", 0), min(schema.get("maxItems", 4), 4)
        prefix = schema.get("prefixItems", [])
        items = schema.get("items", {"enum": [1, "x"]})
        length = max(least, rng.randrange(max(most, 0) + 1) if items is not False else len(prefix))
        parts = [*prefix, *[items] * length][:length]
        return [random_value(part, root, rng, depth + 1) for part in parts]
    return _random_scalar(kind, schema, rng)


def _random_scalar(kind: str, schema: dict[str, Any], rng: random.Random) -> Any:
    match kind:
        case "string" if "pattern" in schema:
            return rng.choice(next((good for p, good in PATTERNS if p == schema["pattern"]), _TEXTS))
        case "string":
            return rng.choice(FORMATS[schema["format"]] if "format" in schema else _TEXTS)
        case "integer":
            return rng.choice([rng.randrange(-120, 120), rng.randrange(-10, 15), rng.randrange(1200)])
        case "number":
            one = rng.choice([rng.randrange(-20, 20), rng.randrange(-400, 4000) / 4, rng.randrange(5000) / 100])
            return int(one) if float(one).is_integer() else one  # as grammars write numbers
        case "boolean":
            return rng.random() < 0.5
        case _:
            return None


def _random_object(schema: dict[str, Any], root: dict[str, Any], rng: random.Random, depth: int) -> Any:
    made = {}
    required = schema.get("required", [])
    for name, one in schema.get("properties", {}).items():
        if name in required or rng.random() < 0.5:
            made[name] = random_value(one, root, rng, depth + 1)
    more = schema.get("additionalProperties", True)
    for name in required:
        if name not in made:
            made[name] = random_value(more, root, rng, depth + 1)
    for pattern, one in schema.get("patternProperties", {}).items():
        if rng.random() < 0.5:
            made[pattern[1] + "_1" if pattern == "^p_" else "q_x"] = random_value(one, root, rng, depth + 1)
    if more is not False and rng.random() < 0.4:
        name = rng.choice(["zz", "其他", "new\nline", "un", "abc"])
        made.setdefault(name, random_value(more, root, rng, depth + 1))
    return made
