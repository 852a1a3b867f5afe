"""Makes a tool of a typed Python function: its name, description, JSON Schema and argument checks."""

from __future__ import annotations

import inspect
import re
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, overload

import pydantic
from pydantic import GetJsonSchemaHandler
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from tenuto.errors import ConfigError, InvalidArguments
from tenuto.protocol.messages import COPIED, ToolSpec
from tenuto.tools.docstring import Docstring, parse_docstring

T = TypeVar("T")

NAME_PATTERN = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MAX_REPORTED = 5  # argument errors told to the model in one result


@dataclass(frozen=True)
class _CopiedMark:
    keyword: bool | str

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core)
        if handler.resolve_ref_schema(schema).get("type") != "string":
            raise ConfigError("Copied[...] marks strings only, e.g. Copied[str]")
        return {**schema, COPIED: self.keyword}


Copied = Annotated[T, _CopiedMark(True)]
"""`Copied[str]`: the grammar admits only text that the user or a tool wrote in this conversation."""

CopiedNewest = Annotated[T, _CopiedMark("newest")]
"""`CopiedNewest[str]`: the same, but only from the newest message that holds a value which fits."""


@dataclass(frozen=True)
class Example:
    """A worked example: what a user may ask, and what the assistant does then.

    Without arguments it shows a question that is answered, or asked back, without a call. With them it needs the
    call's result, because models and servers refuse a call that has none; the answer may be left out to save tokens.
    """

    question: str
    arguments: Mapping[str, Any] | None = None
    result: str | None = None
    answer: str | None = None

    def __post_init__(self) -> None:
        if self.arguments is None and (self.answer is None or self.result is not None):
            raise ConfigError(f"example {self.question!r}: without arguments it needs an answer and no result")
        if self.arguments is not None and self.result is None:
            raise ConfigError(f"example {self.question!r}: with arguments it needs the call's result")


@dataclass(frozen=True)
class Tool:
    """A function the model may call. Calling the tool calls the function, so it stays usable in plain code."""

    name: str
    description: str
    parameters: dict[str, Any]  # JSON Schema of the arguments object
    function: Callable[..., Any]
    arguments: type[pydantic.BaseModel]  # checks arguments; field `arg_i` has the i-th parameter's name as its alias
    is_async: bool
    deadline_s: float | None = None  # None: the runtime's default
    examples: tuple[Example, ...] = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(name=self.name, description=self.description, parameters=self.parameters)

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments for the function. Raises InvalidArguments naming each argument that does not fit."""
        fields = self.arguments.model_fields
        try:
            checked = self.arguments.model_validate(dict(arguments))
        except pydantic.ValidationError as error:
            names = ", ".join(str(f.alias) for f in fields.values()) or "none"
            raise InvalidArguments(f"{_describe(error)}; the arguments of {self.name} are: {names}") from error
        given = {str(info.alias): getattr(checked, field) for field, info in fields.items()}
        return given


def _describe(error: pydantic.ValidationError) -> str:
    """Pydantic's reasons with the argument's path, and without the values that were sent."""
    faults = error.errors(include_url=False, include_input=False, include_context=False)
    told = [f"argument '{'.'.join(str(part) for part in fault['loc'])}': {fault['msg']}" for fault in faults]
    more = [f"and {len(told) - _MAX_REPORTED} more"] if len(told) > _MAX_REPORTED else []
    return "; ".join(told[:_MAX_REPORTED] + more)


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    deadline_s: float | None = None,
    examples: Sequence[Example] = (),
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    deadline_s: float | None = None,
    examples: Sequence[Example] = (),
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Decorator: `@tool` or `@tool(name=..., deadline_s=...)` on a function, sync or async, with type hints.

    The docstring gives the descriptions. Raises ConfigError if the function cannot be described to a model.
    """
    # Types declared inside a function are visible only in its frame (annotations may be strings).
    scope = dict(sys._getframe(1).f_locals)

    def make(target: Callable[..., Any]) -> Tool:
        return _make(target, scope, _Options(name, description, deadline_s, tuple(examples)))

    return make(function) if function is not None else make


@dataclass(frozen=True)
class _Options:
    name: str | None
    description: str | None
    deadline_s: float | None
    examples: tuple[Example, ...]


def _make(function: Callable[..., Any], scope: dict[str, Any], options: _Options) -> Tool:
    name = options.name if options.name is not None else getattr(function, "__name__", "")
    if not NAME_PATTERN.fullmatch(name):
        raise ConfigError(f"tool name {name!r}: 1 to 64 letters, digits, _ or - are allowed; set @tool(name=...)")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(f"tool {name}: a generator has no single result; return the value instead")
    if options.deadline_s is not None and options.deadline_s <= 0:
        raise ConfigError(f"tool {name}: deadline_s must be above 0")
    doc = parse_docstring(function.__doc__)
    arguments = _arguments_model(name, function, scope, doc)
    made = Tool(
        name=name,
        description=options.description or doc.description or name.replace("_", " "),
        parameters=_schema(name, arguments),
        function=function,
        arguments=arguments,
        is_async=inspect.iscoroutinefunction(function),
        deadline_s=options.deadline_s,
        examples=options.examples,
    )
    for example in options.examples:
        _check_example(made, example)
    return made


def _arguments_model(
    name: str, function: Callable[..., Any], scope: dict[str, Any], doc: Docstring
) -> type[pydantic.BaseModel]:
    try:
        hints = typing.get_type_hints(function, localns=scope, include_extras=True)
    except Exception as error:
        raise ConfigError(f"tool {name}: its type hints cannot be read: {error}") from error
    fields: dict[str, Any] = {}
    parameters = inspect.signature(function).parameters
    for index, (argument, parameter) in enumerate(parameters.items()):
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ConfigError(f"tool {name}: {parameter} cannot be described to a model; use named parameters")
        if argument not in hints:
            raise ConfigError(f"tool {name}: parameter {argument!r} has no type hint")
        default = ... if parameter.default is parameter.empty else parameter.default
        info: FieldInfo = pydantic.Field(default, alias=argument, description=doc.arguments.get(argument))
        # The alias leaves every parameter name free, also those that a pydantic model uses itself ("schema", "copy").
        fields[f"arg_{index}"] = (hints[argument], info)
    strangers = set(doc.arguments) - set(parameters)
    if strangers:
        raise ConfigError(f"tool {name}: its docstring describes {sorted(strangers)}, which it does not take")
    config = pydantic.ConfigDict(extra="forbid", coerce_numbers_to_str=True, arbitrary_types_allowed=False)
    try:
        return pydantic.create_model(name, __config__=config, **fields)
    except pydantic.errors.PydanticUserError as error:
        raise ConfigError(f"tool {name}: {str(error).splitlines()[0]}") from error


def _schema(name: str, arguments: type[pydantic.BaseModel]) -> dict[str, Any]:
    try:
        schema = arguments.model_json_schema(by_alias=True)
    except pydantic.errors.PydanticUserError as error:
        raise ConfigError(f"tool {name}: {str(error).splitlines()[0]}") from error
    cleaned: dict[str, Any] = _without_titles(schema)
    cleaned.pop("description", None)  # the model class's docstring, not the tool's
    return cleaned


def _without_titles(schema: Any, in_properties: bool = False) -> Any:
    """Drops the generated titles, which cost tokens and say nothing; a property named "title" stays."""
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_titles(value, in_properties=not in_properties and key in ("properties", "$defs"))
        if key not in ("default", "enum", "const", "examples") or in_properties
        else value
        for key, value in schema.items()
        if in_properties or key != "title"
    }


def _check_example(made: Tool, example: Example) -> None:
    if example.arguments is None:
        return
    try:
        made.check(example.arguments)
    except InvalidArguments as error:
        raise ConfigError(f"tool {made.name}: example {example.question!r}: {error}") from error
    for argument, schema in made.parameters.get("properties", {}).items():
        value = example.arguments.get(argument)
        if COPIED in schema and isinstance(value, str) and value not in example.question:
            raise ConfigError(
                f"tool {made.name}: example {example.question!r} does not contain {value!r}, "
                f"but {argument!r} is copied from the question"
            )
