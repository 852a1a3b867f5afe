"""What must hold in every tool-call format."""

from __future__ import annotations

import json
from typing import Any

import pytest

from call_texts import (
    NAMES,
    TOOLS,
    calls_in,
    format_named,
    parse,
    parse_everyhow,
    text_in,
)
from tenuto.config import Config
from tenuto.text.formats.known import FORMATS
from tenuto.text.formats.markers import MARKERS
from tenuto.text.tool_format import CallArguments, CallFinished, CallStarted, Text

ROOM = {"guest": {"name": "Ada", "tier": "gold"}, "beds": [{"w": 2}], "night": 7}
C_FUNCTION = "int f(int a[])\n{\n  if (a[0] < 3) { return g(a[1]); }\n  [[unused]] int b;\n  return {0};\n}\n"
TYPED = [
    {"text": "last", "loud": True},
    {"text": "", "times": -3},
    {"text": 'end } here " and ] too \\', "times": 1},
    {"text": "São Paulo 你好 😀\n'x'"},
    {"text": "null"},
    {"text": "3"},
]


def test_every_format_can_be_set() -> None:
    for name in NAMES:
        assert Config.load(tool_format=name).tool_format == name
    assert Config.load().tool_format == "auto"


@pytest.mark.parametrize("name", NAMES)
def test_a_nested_object_streams_as_it_is_read_at_once(name: str) -> None:
    tool_format = format_named(name)
    pieces = parse_everyhow(tool_format, tool_format.write([("book_room", ROOM)]))
    arguments = "".join(piece.text for piece in pieces if isinstance(piece, CallArguments))
    assert json.loads(arguments) == ROOM and pieces[-1] == CallFinished("book_room", ROOM)
    assert len(pieces) == 3, "nothing else comes of it"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("arguments", TYPED, ids=range(len(TYPED)))
def test_every_kind_of_value_comes_back(name: str, arguments: dict[str, Any]) -> None:
    tool_format = format_named(name)
    assert calls_in(parse_everyhow(tool_format, tool_format.write([("say", arguments)]))) == [("say", arguments)]


@pytest.mark.parametrize("name", NAMES)
def test_no_arguments_are_an_empty_object_and_the_next_call_has_its_own(name: str) -> None:
    tool_format = format_named(name)
    calls = [("ping", {}), ("add", {"x": 42}), ("ping", {})]
    pieces = parse_everyhow(tool_format, tool_format.write(calls))
    assert calls_in(pieces) == calls and text_in(pieces) == ""
    assert pieces[:3] == [CallStarted("ping"), CallArguments("{}"), CallFinished("ping", {})]


@pytest.mark.parametrize("name", NAMES)
def test_all_prose_is_kept_in_order(name: str) -> None:
    tool_format = format_named(name)
    a, b = tool_format.write([("ping", {})]), tool_format.write([("add", {"x": 1.5})])
    pieces = parse_everyhow(tool_format, f"before {{x}}\n{a}\nmid [1]\n{b}\nafter")
    kinds = [piece.text if isinstance(piece, Text) else type(piece).__name__ for piece in pieces]
    call = ["CallStarted", "CallArguments", "CallFinished"]
    assert kinds == ["before {x}\n", *call, "\nmid [1]\n", *call, "\nafter"]


@pytest.mark.parametrize("name", NAMES)
def test_code_and_other_prose_with_brackets_is_text_at_once(name: str) -> None:
    tool_format = format_named(name)
    assert parse_everyhow(tool_format, C_FUNCTION) == [Text(C_FUNCTION)]
    parser = tool_format.parser(TOOLS)
    shown = [sum(len(p.text) for p in parser.push(c) if isinstance(p, Text)) for c in C_FUNCTION]
    held = [index - sum(shown[: index + 1]) for index in range(len(shown))]
    assert max(held) < 12, "prose is not held until its brackets close"


@pytest.mark.parametrize("name", NAMES)
def test_the_first_argument_leaves_before_the_call_is_closed(name: str) -> None:
    tool_format = format_named(name)
    text = tool_format.write([("say", {"text": "one two three"})])
    parser = tool_format.parser(TOOLS)
    seen = parser.push(text[: text.index("two")])
    assert CallStarted("say") in seen
    assert "".join(p.text for p in seen if isinstance(p, CallArguments)) == '{"text": "one '
    assert "".join(p.text for p in parser.push("two") if isinstance(p, CallArguments)) == "two"


@pytest.mark.parametrize("name", NAMES)
def test_a_call_that_is_cut_off_comes_as_text_and_keeps_those_before_it(name: str) -> None:
    tool_format = format_named(name)
    text = tool_format.write([("ping", {}), ("say", {"text": "你好"})])
    pieces = parse_everyhow(tool_format, text[: text.index("好")])
    assert calls_in(pieces) == [("ping", {})]
    last = pieces[-1]
    assert isinstance(last, Text) and last.is_cut_call and last.text.endswith("你")


@pytest.mark.parametrize("name", NAMES)
def test_markers_are_read_but_never_shown_where_they_are_control_tokens(name: str) -> None:
    tool_format = format_named(name, MARKERS)
    calls = [("ping", {}), ("add", {"x": 1})]
    text = tool_format.write(calls)
    pieces = parse_everyhow(tool_format, f"{text} done")
    assert calls_in(pieces) == calls and text_in(pieces).strip() == "done"
    stray = "".join(sorted(MARKERS))
    broken = parse_everyhow(tool_format, f"{stray} a {text[: len(text) // 3]}")
    assert not any(marker in text_in(broken) for marker in MARKERS)


@pytest.mark.parametrize("name", NAMES)
def test_escapes_of_surrogates_become_characters_or_replacement_marks(name: str) -> None:
    if name == "xml":
        pytest.skip("strings stand as they are: there are no escapes")
    tool_format = format_named(name)
    text = tool_format.write([("say", {"text": "TEXT"})])
    for escape, meaning in (
        ("\\ud83d\\ude00", "😀"),
        ("\\ud83d", "\ufffd"),
        ("\\ude00x", "\ufffdx"),
        ("\\u4f60", "你"),
    ):
        pieces = parse_everyhow(tool_format, text.replace("TEXT", escape))
        assert calls_in(pieces) == [("say", {"text": meaning})], escape
        assert all(json.dumps(arguments, ensure_ascii=False).encode() for _, arguments in calls_in(pieces))


HEAPS = {
    "arguments": "[say(" + ", ".join(f"p{i}=0" for i in range(27)),
    "closed arguments": "[say(" + ", ".join(f"p{i}=0" for i in range(50_000)) + ")]",
    "separators": "[TOOL_CALLS] [" + "," * 500_000,
    "semicolons": "<|python_tag|>" + ";" * 500_000,
    "markers": "[TOOL_CALLS]" * 40_000,
    "begins": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>" * 12_000,
    "tags": "<tool_call>\n<function=say>" * 18_000,
    "braces": "{" * 500_000,
    "lines": "[\n{\n" * 120_000,
    "spaces": "<tool_call>" + " " * 500_000,
    "near ends": "<function=say><parameter=text>" + "\n</parameter" * 40_000,
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("heap", HEAPS)
def test_heaps_of_separators_come_back_as_text(name: str, heap: str) -> None:
    """In linear time: the whole of them in no more than it takes to look at each character a few times."""
    text = HEAPS[heap]
    pieces = parse(format_named(name), [text])
    assert text_in(pieces) == text and not calls_in(pieces)


@pytest.mark.parametrize("name", NAMES)
def test_a_turn_begins_no_more_than_a_thousand_calls(name: str) -> None:
    tool_format = format_named(name)
    ping = tool_format.write([("ping", {})]) + "\n"
    pieces = parse(tool_format, [ping * 1_200])
    assert len(calls_in(pieces)) == 1_000
    assert text_in(pieces).count("ping") == 200


def test_a_format_has_a_name_of_its_own() -> None:
    assert all(FORMATS[name].name == name for name in NAMES)
