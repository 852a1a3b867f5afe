"""Tools, calls in history and the format of an answer, in the form that all APIs share once their wrapping is off."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

from pydantic import Field

from tenuto.errors import InvalidRequest
from tenuto.protocol.chat import AllowedTools
from tenuto.protocol.grammar import GrammarSpec
from tenuto.protocol.messages import ToolSpec
from tenuto.server.body import decode_json
from tenuto.server.limits import ServerLimits
from tenuto.server.wire_shape import Wire

_JSON_OBJECT = GrammarSpec(kind="json_schema", source='{"type": "object"}')
_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}


class FunctionSpec(Wire):
    """A tool the model may call."""

    name: str = Field(min_length=1, max_length=64, description="unique among the tools")
    description: str | None = Field(None, description="what it does and when to call it, for the model")
    parameters: dict[str, Any] | None = Field(
        None, description="JSON Schema of the arguments object; missing: no arguments"
    )
    strict: bool | None = Field(
        None,
        description="true: a schema that cannot be held exactly is refused. Otherwise calls are decoded under what of "
        "it can be held, and the rest is logged",
    )

    def spec(self) -> ToolSpec:
        return ToolSpec(
            name=self.name,
            description=self.description or "",
            parameters=self.parameters or _NO_PARAMETERS,
            strict=bool(self.strict),
        )


AnswerFormat: TypeAlias = Literal["text", "json_object", "json_schema"]


def answer_grammar(kind: AnswerFormat, schema: dict[str, Any] | None, path: str) -> GrammarSpec | None:
    """What an answer's text must be.

    Args:
        path: of the schema in the body.

    Raises InvalidRequest if the schema is needed and missing.
    """
    if kind == "text":
        return None
    if kind == "json_object":
        return _JSON_OBJECT
    if schema is None:
        raise InvalidRequest(f"{path} is required of the type json_schema", path)
    return GrammarSpec(kind="json_schema", source=json.dumps(schema, ensure_ascii=False))


def tool_specs(tools: Iterable[tuple[str, ToolSpec]]) -> tuple[ToolSpec, ...]:
    """The tools, each name once. Args: pairs of the path of the name in the body, and the tool.

    Raises InvalidRequest.
    """
    specs: dict[str, ToolSpec] = {}
    for path, tool in tools:
        if tool.name in specs:
            raise InvalidRequest(f"{path}: {tool.name!r} is declared twice", path)
        specs[tool.name] = tool
    return tuple(specs.values())


def check_declared(name: str, tools: Iterable[ToolSpec], param: str) -> None:
    """Raises InvalidRequest unless the tool is among them."""
    known = [tool.name for tool in tools]
    if name not in known:
        raise InvalidRequest(f"{param}: {name[:100]!r} is not among tools ({', '.join(known) or 'none'})", param)


def allowed_tools(
    names: Sequence[str], mode: Literal["auto", "required"] | None, tools: Sequence[ToolSpec]
) -> AllowedTools:
    """Raises InvalidRequest unless all are declared."""
    for name in names:
        check_declared(name, tools, "tool_choice")
    return AllowedTools(tuple(dict.fromkeys(names)), mode or "auto")


def read_arguments(text: str | None, where: str, limits: ServerLimits) -> dict[str, Any]:
    """A call's arguments as clients send them back: JSON text of an object; blank or null means none.

    Raises InvalidRequest naming `where`.
    """
    text = (text or "").strip()
    try:
        arguments = decode_json(text, limits.max_json_depth, limits.max_json_values) if text else {}
    except InvalidRequest as error:
        raise InvalidRequest(f"{where}: {error}", where) from error
    if arguments is None:  # "null": what a client writes that has no arguments to write
        arguments = {}
    if not isinstance(arguments, dict):
        raise InvalidRequest(f"{where}: must be a JSON object", where)
    return arguments
