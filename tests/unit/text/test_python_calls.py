from __future__ import annotations

import sys
from typing import Any

import pytest

from call_texts import TOOLS, calls_in, format_named, parse_everyhow, text_in
from tenuto.text.tool_format import CallArguments, CallStarted

PYTHONIC = format_named("pythonic", ["<|python_tag|>", "<|python_start|>", "<|python_end|>"])


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("'it\\'s'", "it's"),
        ('"say \\"hi\\" to \'me\'"', "say \"hi\" to 'me'"),
        ("'a\\n\\t\\\\b\\x41\\u4f60\\U0001F600\\101'", "a\n\t\\bA你😀A"),
        ("'\\d+ \\ud83d\\ude00 \\ud83d'", "\\d+ 😀 \ufffd"),
        ("'one \\\ntwo'", "one two"),
        ("'raw\nline'", "raw\nline"),
        ("'}])(,= 你好'", "}])(,= 你好"),
        ("''", ""),
        ("True", True),
        ("false", False),
        ("None", None),
        ("-1.5e3", -1500.0),
        ("1_000", 1000),
        ("0x1F", 31),
        (".5", 0.5),
        ("-1e999", -sys.float_info.max),
        ("[1, 'a', [], {}, None,]", [1, "a", [], {}, None]),
        ("(1, 2)", [1, 2]),
        ("{'a': {'b': [True]}, \"c\": 1}", {"a": {"b": [True]}, "c": 1}),
        ("[ ]", []),
    ],
)
def test_literals_become_json(literal: str, value: Any) -> None:
    pieces = parse_everyhow(PYTHONIC, f"[any(value={literal}), any( value = {literal} , )]")
    assert calls_in(pieces) == [("any", {"value": value})] * 2 and text_in(pieces) == ""


@pytest.mark.parametrize(
    "literal",
    [
        "f'x'",
        "foo",
        "[1",
        "1 + 2",
        "{1: 2}",
        "{1, 2}",
        "--1",
        "'a' 'b'",
        "x.y",
        "'\\xZZ'",
        "[1,,2]",
        "lambda: 0",
    ],
)
def test_what_is_no_literal_makes_it_no_call(literal: str) -> None:
    text = f"[any(value={literal})]"
    pieces = parse_everyhow(PYTHONIC, text)
    assert not calls_in(pieces) and text_in(pieces) == text


@pytest.mark.parametrize(
    "text",
    [
        "[link](https://example.org)",
        "[say]",
        "[say(",
        "[say('hello')]",
        "[unknown(a=1)]",
        "[1, 2, 3]",
        "[ ]",
        "print [say(text='a')]",
        "[say(text='a', text='b')]",
        "[say(text=='a')]",
        "[g(p1=0, p2=0, p3=0",
    ],
)
def test_near_misses_are_text(text: str) -> None:
    pieces = parse_everyhow(PYTHONIC, text)
    assert not calls_in(pieces) and text_in(pieces) == text


def test_calls_stand_bare_or_between_tags() -> None:
    for text in (
        "[ping(), add(x=1)]",
        "<|python_tag|>[ping(), add(x=1)]",
        "<|python_start|>[ping(),add(x=1)]<|python_end|>",
    ):
        pieces = parse_everyhow(PYTHONIC, text + " ok")
        assert calls_in(pieces) == [("ping", {}), ("add", {"x": 1})]
        assert text_in(pieces) == " ok"
    assert calls_in(parse_everyhow(PYTHONIC, "<|python_tag|>[any.name(a=1)]")) == [("any.name", {"a": 1})]


def test_what_follows_a_list_is_text() -> None:
    pieces = parse_everyhow(PYTHONIC, "[ping()], [ping()] and [x]")
    assert calls_in(pieces) == [("ping", {})] and text_in(pieces) == ", [ping()] and [x]"


def test_arguments_are_json_text_as_they_come() -> None:
    parser = PYTHONIC.parser(TOOLS)
    assert parser.push("[say(text") == []
    assert parser.push("='a") == [CallStarted("say"), CallArguments('{"text": '), CallArguments('"a')]
    rest = parser.push("\\'b\", times=")
    assert "".join(p.text for p in rest if isinstance(p, CallArguments)) == "'b\\\", times="
    rest = parser.push("', times=12)")
    assert "".join(p.text for p in rest if isinstance(p, CallArguments)) == '", "times": 12}'
