from __future__ import annotations

from typing import Any

import pytest

from call_texts import TOOLS, calls_in, format_named, parse_everyhow, text_in, tool
from tenuto.protocol.messages import ToolSpec
from tenuto.text.tool_format import CallArguments, CallStarted

XML = format_named("xml")


def element(key: str, value: str) -> str:
    return f"<parameter={key}>\n{value}\n</parameter>\n"


def call(name: str, *elements: str) -> str:
    return f"<tool_call>\n<function={name}>\n{''.join(elements)}</function>\n</tool_call>"


def read(value: str, schema: Any, tools: tuple[ToolSpec, ...] | None = None) -> Any:
    declared = (tool("t", {"v": schema}),) if tools is None else tools
    pieces = parse_everyhow(XML, call("t", element("v", value)), declared)
    [(name, arguments)] = calls_in(pieces)
    assert name == "t" and text_in(pieces) == ""
    return arguments["v"]


@pytest.mark.parametrize(
    "text", ["3", "null", "True", "{}", " a\n b ", "", "\n", '"quoted"', "<b>&amp;</b>", "</parameter", "你好 😀"]
)
def test_a_string_is_what_stands_between_the_line_breaks(text: str) -> None:
    assert read(text, {"type": "string"}) == text
    assert read(text, {"enum": ["a", text]}) == text


@pytest.mark.parametrize(
    ("value", "schema", "meaning"),
    [
        ("3", {"type": "integer"}, 3),
        (" -1.5 ", {"type": "number"}, -1.5),
        ("true", {"type": "boolean"}, True),
        ("False", {"type": "boolean"}, False),
        ("None", {"type": ["string", "null"]}, None),
        ("3", {"type": ["string", "null"]}, "3"),
        ("3", {"type": ["string", "integer"]}, 3),
        ("abc", {"type": "integer"}, "abc"),
        ('{"a": [1, {"b": "}"}]}', {"type": "object"}, {"a": [1, {"b": "}"}]}),
        ("[1, 2]", {"type": "array"}, [1, 2]),
        ("[1, 2", {"type": "array"}, "[1, 2"),
        ("7", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, 7),
        ("7", {"anyOf": [{"type": "string"}, {"type": "null"}]}, "7"),
        ("null", {"anyOf": [{"type": "string"}, {"type": "null"}]}, None),
        ("7", {}, 7),
        ('"7"', {}, '"7"'),
        ("NaN", {}, "NaN"),
        ("\\ud83d", {"type": "string"}, "\\ud83d"),
        ('["\\ud83d"]', {"type": "array"}, ["\ufffd"]),
    ],
)
def test_other_values_are_json_of_the_types_that_the_schema_names(value: str, schema: Any, meaning: Any) -> None:
    found = read(value, schema)
    assert found == meaning and type(found) is type(meaning)


def test_references_are_followed_and_an_unknown_parameter_is_read_by_its_looks() -> None:
    kinds = {"$defs": {"Kind": {"type": "string"}, "Loop": {"$ref": "#/$defs/Loop"}}}
    named = (tool("t", {"v": {"$ref": "#/$defs/Kind"}}, **kinds),)
    assert read("3", None, named) == "3"
    assert read("3", None, (tool("t", {"v": {"$ref": "#/$defs/Loop"}}, **kinds),)) == 3
    assert read("3", None, (tool("other", {}),)) == 3
    assert calls_in(parse_everyhow(XML, call("t", element("v", "[1]")), None)) == [("t", {"v": [1]})]


@pytest.mark.parametrize(
    "text",
    [
        "<function=ping>\n</function>",
        "<tool_call><function=ping></function></tool_call>",
        "<tool_call>\n<function=ping>\n</function>",
        "<function=ping>\n</function>\n</tool_call>\n",
    ],
)
def test_the_outer_tags_may_be_missing(text: str) -> None:
    pieces = parse_everyhow(XML, "看 " + text)
    assert calls_in(pieces) == [("ping", {})] and text_in(pieces) == "看 "


def test_values_without_line_breaks_and_several_functions_in_one_tag() -> None:
    text = "<tool_call><function=say><parameter=text>a b</parameter></function><function=ping></function></tool_call>"
    assert calls_in(parse_everyhow(XML, text)) == [("say", {"text": "a b"}), ("ping", {})]


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>",
        '<tool_call>{"name": "ping"}</tool_call>',
        "<tool_call>\n<function=>\n</function>",
        "<tool_call>\n<function=a b>\n</function>",
        "<function=ping",
        "<function=" + "x" * 400 + ">",
        "<function=say>\n<parameter=text>\nnever closed",
        "<function=say>\nprose",
        call("say", element("text", "a"), element("text", "b")),
        "</function></tool_call><parameter=x>",
    ],
)
def test_what_is_no_call_is_text(text: str) -> None:
    pieces = parse_everyhow(XML, text)
    assert not calls_in(pieces) and text_in(pieces) == text


def test_strings_stream_and_hold_back_only_what_may_end_them() -> None:
    parser = XML.parser(TOOLS)
    assert parser.push("<tool_call>\n<function=say>\n<parameter=text>\n你") == [
        CallStarted("say"),
        CallArguments("{"),
        CallArguments('"text": "'),
        CallArguments("你"),
    ]
    assert parser.push("好\n</para") == [CallArguments("好")]
    assert "".join(p.text for p in parser.push("graph") if isinstance(p, CallArguments)) == "\\n</paragraph"
    rest = parser.push("\n</parameter>\n<parameter=times>\n4")
    assert "".join(p.text for p in rest if isinstance(p, CallArguments)) == '", "times": '
