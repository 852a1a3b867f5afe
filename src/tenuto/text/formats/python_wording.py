"""Calls written in Python, see `python_call`: rules and text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tenuto.protocol.messages import ToolSpec
from tenuto.text.formats.json_text import dumps
from tenuto.text.formats.parameters import MAX_OPTIONS, properties_of, required_of, resolved
from tenuto.text.formats.python_call import NAME
from tenuto.text.formats.wording import CallRule, check_name
from tenuto.text.lark_text import literal
from tenuto.text.tool_grammar import ToolArguments, ToolGrammar

_SPLIT_WITH = frozenset({"type", "title", "description", "default", "examples"})
_MAX_NESTED = 2  # unions in unions that are written out


@dataclass(frozen=True)
class PythonWording:
    """Arguments by name, in declared order; a list of calls, `[f(a=1), g()]`.

    Strings are written with double quotes and JSON's escapes, which are Python's too. Booleans and None are written
    as in Python where they are an argument, and as in JSON inside of lists and dicts; both are read.
    """

    first: str = "["
    between: str = ", "
    last: str = "]"

    @property
    def usage(self) -> str:
        return "...(...=..., ...=...)"

    def call(self, rules: ToolGrammar, index: int, tool: ToolSpec) -> CallRule | None:
        check_name(tool.name, NAME)
        arguments = ToolArguments(rules, f"t{index}", tool)
        pairs: list[tuple[str, bool]] = []
        required = required_of(rules, tool)
        for key, schema in properties_of(tool).items():
            check_name(key, NAME)
            value = _value(arguments, tool, schema, f"#/properties/{key}", 0)
            if value is None and key in required:
                return None
            if value is not None:
                pairs.append((f"{literal(f'{key}=')} ({value})", key in required))
        return CallRule(f"{tool.name}(", f'{arguments.separated(pairs)} ")"')

    def write(self, name: str, arguments: Mapping[str, Any]) -> str:
        return f"{name}({', '.join(f'{key}={_written(value)}' for key, value in arguments.items())})"


def _value(arguments: ToolArguments, tool: ToolSpec, schema: Any, path: str, depth: int) -> str | None:
    found = resolved(schema, tool.parameters)
    if not isinstance(found, dict) or depth > _MAX_NESTED:
        return arguments.value(schema, path)
    given = found.get("enum", [found["const"]] if "const" in found else None)
    if isinstance(given, list) and given and found.keys() <= {"enum", "const"} | _SPLIT_WITH:
        return " | ".join(literal(_written(value)) for value in given)
    options = found.get("anyOf", found.get("oneOf"))
    kinds = found.get("type")
    if (
        isinstance(options, list)
        and 0 < len(options) <= MAX_OPTIONS
        and found.keys() <= {"anyOf", "oneOf"} | _SPLIT_WITH
    ):
        bodies = [_value(arguments, tool, option, path, depth + 1) for option in options]
    elif isinstance(kinds, list) and 0 < len(kinds) <= MAX_OPTIONS:
        bodies = [_value(arguments, tool, {**found, "type": kind}, path, depth + 1) for kind in kinds]
    elif kinds == "boolean":
        return '"True" | "False"'
    elif kinds == "null":
        return '"None"'
    else:
        return arguments.value(schema, path)
    known = [arguments.rule(body) for body in bodies if body is not None]
    return " | ".join(known) if known else None


def _written(value: Any) -> str:
    words = {True: "True", False: "False", None: "None"}
    return words[value] if value is None or isinstance(value, bool) else dumps(value)
