from __future__ import annotations

import asyncio
import enum
import inspect
from typing import Annotated, Any, Literal

import pydantic
import pytest

from tenuto.errors import ConfigError, InvalidArguments
from tenuto.protocol.messages import COPIED
from tenuto.tools import Copied, Example, Tool, tool


class Unit(enum.Enum):
    C = "celsius"
    F = "fahrenheit"


class Place(pydantic.BaseModel):
    city: str
    title: str = ""
    lat: float | None = None


@tool
def weather(
    city: Copied[str],
    day: Literal["今天", "明天"],
    *,
    unit: Unit = Unit.C,
    place: Place | None = None,
    hours: list[int] = [],  # noqa: B006
    note: Copied[str] | None = None,
) -> str:
    """查询某个城市的天气。
    Looks the weather up.

    A second paragraph.

    Args:
        city: 城市名称，例如“北京”
        day (str): which day:
            today or tomorrow
        unit: of the temperature
    Returns:
        a sentence
    """
    return f"{city} {day} {unit.value} {place} {hours} {note}"


def test_the_schema_comes_from_hints_and_docstring():
    assert weather.name == "weather"
    assert weather.description == "查询某个城市的天气。 Looks the weather up.\nA second paragraph."
    schema = weather.parameters
    properties = schema["properties"]
    assert list(properties) == ["city", "day", "unit", "place", "hours", "note"]
    assert schema["required"] == ["city", "day"]
    assert schema["additionalProperties"] is False
    assert properties["city"] == {"type": "string", COPIED: True, "description": "城市名称，例如“北京”"}
    assert properties["day"] == {
        "type": "string", "enum": ["今天", "明天"], "description": "which day: today or tomorrow"
    }  # fmt: skip
    assert properties["unit"]["default"] == "celsius"
    assert schema["$defs"]["Unit"]["enum"] == ["celsius", "fahrenheit"]
    assert properties["hours"] == {"type": "array", "items": {"type": "integer"}, "default": []}
    assert {"type": "string", COPIED: True} in properties["note"]["anyOf"]


def test_generated_titles_are_dropped_but_a_property_named_title_stays():
    place = weather.parameters["$defs"]["Place"]
    assert "title" not in place and "title" not in weather.parameters
    assert place["properties"]["title"] == {"type": "string", "default": ""}


def test_arguments_are_checked_and_become_python_values():
    checked = weather.check(
        {"city": "北京", "day": "今天", "unit": "fahrenheit", "place": {"city": "x"}, "hours": ["3"]}
    )
    assert checked["unit"] is Unit.F
    assert checked["place"] == Place(city="x")
    assert checked["hours"] == [3]
    assert weather(**checked).startswith("北京 今天 fahrenheit")
    assert weather.check({"city": 5, "day": "今天"})["city"] == "5"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "argument 'city': Field required"),
        ({"city": "北京", "day": "昨天"}, "argument 'day'"),
        ({"city": "北京", "day": "今天", "unit": "kelvin"}, "argument 'unit'"),
        ({"city": "北京", "day": "今天", "place": {}}, "argument 'place.city'"),
        ({"city": "北京", "day": "今天", "town": "x"}, "argument 'town'"),
        ({"city": None, "day": "今天"}, "argument 'city'"),
    ],
)
def test_an_argument_that_does_not_fit_is_named(arguments, told):
    with pytest.raises(InvalidArguments) as raised:
        weather.check(arguments)
    assert told in str(raised.value)
    assert "the arguments of weather are: city, day, unit, place, hours, note" in str(raised.value)


def test_the_error_does_not_repeat_what_was_sent():
    with pytest.raises(InvalidArguments) as raised:
        weather.check({"city": ["SECRET"], "day": "SECRET"})
    assert "SECRET" not in str(raised.value)


def test_any_parameter_name_is_fine():
    @tool
    def odd(schema: str, copy: int, model_config: bool, _hidden: str = "", class_: str = "") -> Any:
        """Odd."""
        return schema, copy, model_config, _hidden

    assert list(odd.parameters["properties"]) == ["schema", "copy", "model_config", "_hidden", "class_"]
    checked = odd.check({"schema": "a", "copy": 1, "model_config": True})
    assert odd(**checked) == ("a", 1, True, "")


def test_types_declared_inside_a_function_are_found():
    class Local(pydantic.BaseModel):
        x: int

    @tool(name="local_type")
    def use(value: Local) -> int:
        """Use."""
        return value.x

    assert use(**use.check({"value": {"x": 3}})) == 3


def test_constraints_and_async_functions():
    @tool(name="count", description="数数", deadline_s=2.5)
    async def counting(n: Annotated[int, pydantic.Field(ge=1, le=3)]) -> int:
        return n

    assert isinstance(counting, Tool)
    assert (counting.name, counting.description, counting.deadline_s, counting.is_async) == ("count", "数数", 2.5, True)
    assert counting.parameters["properties"]["n"] == {"type": "integer", "minimum": 1, "maximum": 3}
    assert asyncio.run(counting(2)) == 2
    with pytest.raises(InvalidArguments, match="'n'"):
        counting.check({"n": 4})


def test_a_tool_without_arguments():
    @tool
    def nothing() -> None:
        """Nothing."""

    assert nothing.parameters == {"type": "object", "properties": {}, "additionalProperties": False}
    assert nothing.check({}) == {}
    with pytest.raises(InvalidArguments, match="the arguments of nothing are: none"):
        nothing.check({"x": 1})


def unhinted(x):
    """No hint."""


def starred(*args: int):
    """Star."""


def unknown_type(x: Mystery):  # noqa: F821
    """Unknown."""


def strange_doc(x: int):
    """Doc.

    Args:
        y: not a parameter
    """


def generator(x: int):
    """Generator."""
    yield x


def no_schema(x: inspect.Signature):
    """A type that JSON does not have."""


def copied_number(x: Copied[int]):
    """Only strings can be copied."""


def chinese_name(x: int):
    """Name."""


chinese_name.__name__ = "天气"


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (unhinted, "parameter 'x' has no type hint"),
        (starred, "args"),
        (unknown_type, "Mystery"),
        (strange_doc, "'y'"),
        (generator, "generator"),
        (no_schema, "Signature"),
        (copied_number, "strings only"),
        (chinese_name, "letters, digits"),
    ],
)
def test_a_function_that_cannot_be_described_is_refused(function, told):
    with pytest.raises(ConfigError) as raised:
        tool(function)
    assert told in str(raised.value)


def make(**settings):
    @tool(name="w", **settings)
    def w(city: Copied[str], n: int = 1) -> str:
        """W."""
        return city

    return w


def test_examples_are_checked_when_the_tool_is_made():
    made = make(examples=[Example("北京天气", {"city": "北京"}, "晴"), Example("天气？", answer="哪个城市？")])
    assert len(made.examples) == 2
    with pytest.raises(ConfigError, match="上海"):
        make(examples=[Example("北京天气", {"city": "上海"}, "晴")])
    with pytest.raises(ConfigError, match="'n'"):
        make(examples=[Example("北京天气", {"city": "北京", "n": "many"}, "晴")])
    with pytest.raises(ConfigError, match="result"):
        Example("q", {"city": "q"}, answer="a")
    with pytest.raises(ConfigError, match="needs an answer"):
        Example("q")


def test_names_and_deadlines_are_checked():
    for bad in ("", "a b", "x" * 65, "wetter!"):
        with pytest.raises(ConfigError, match="tool name"):
            tool(name=bad)(unhinted)
    with pytest.raises(ConfigError, match="deadline_s"):
        make(deadline_s=0)
