"""Formats that mark calls with tokens of their own, and Llama's, as models spell them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from call_texts import calls_in, format_named, parse_everyhow, text_in
from tenuto.text.tool_format import Text

ADD = ("add", {"x": 1})
BEGIN, END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
ONE, OVER, SEP = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"


@pytest.mark.parametrize("name", ["mistral", "mistral-args"])
@pytest.mark.parametrize(
    "text",
    [
        '[TOOL_CALLS] [{"name": "add", "arguments": {"x": 1}}]',
        '[TOOL_CALLS][{"name":"add","arguments":{"x":1}}]',
        '[TOOL_CALLS] [ {"id": "123456789", "name": "add", "arguments": {"x": 1}} ] ',
        '[TOOL_CALLS]{"name": "add", "arguments": {"x": 1}}',
        '[TOOL_CALLS]add[ARGS]{"x": 1}',
        '[TOOL_CALLS] add [ARGS] {"x": 1}',
        '[TOOL_CALLS]add[CALL_ID]a1B2c3D4e[ARGS]{"x": 1}',
        '[TOOL_CALLS]add{"x": 1}',
    ],
)
def test_mistral_of_both_generations_is_read(name: str, text: str) -> None:
    tool_format = format_named(name)
    pieces = parse_everyhow(tool_format, text)
    assert calls_in(pieces) == [ADD] and text_in(pieces) == ""
    before = parse_everyhow(tool_format, "use {x} or [y] " + text)
    assert calls_in(before) == [ADD] and text_in(before) == "use {x} or [y] "


def test_mistral_makes_calls_in_a_row() -> None:
    tool_format = format_named("mistral-args")
    text = '[TOOL_CALLS]add[ARGS]{"x": 1}[TOOL_CALLS]ping[ARGS]{} [TOOL_CALLS] [{"name": "add", "arguments": {"x": 1}}]'
    assert calls_in(parse_everyhow(tool_format, text)) == [ADD, ("ping", {}), ADD]


@pytest.mark.parametrize(
    "text",
    [
        "[TOOL_CALLS]",
        "[TOOL_CALLS] []",
        "[TOOL_CALLS] [1, 2]",
        "[TOOL_CALLS] nothing to call",
        "[TOOL_CALLS]add[ARGS]",
        "[TOOL_CALLS]two words{}",
        "[ARGS]{}",
        "[TOOL_CALL] [TOOL_CALLS",
        '[TOOL_CALLS] [{"name": "add", "arguments": [1]}]',
        "[TOOL_CALLS]" + "x" * 400 + "{}",
    ],
)
@pytest.mark.parametrize("hides", [False, True])
def test_what_is_no_call_of_mistral_is_text_without_its_markers(text: str, hides: bool) -> None:
    markers = ("[TOOL_CALLS]", "[ARGS]")
    pieces = parse_everyhow(format_named("mistral", markers if hides else ()), text)
    shown = text
    for marker in markers if hides else ():
        shown = shown.replace(marker, "")
    assert not calls_in(pieces) and text_in(pieces) == shown


def test_bad_json_of_mistral_shows_what_it_was_and_hides_the_marker() -> None:
    tool_format = format_named("mistral-args", ["[TOOL_CALLS]", "[ARGS]"])
    pieces = parse_everyhow(tool_format, '[TOOL_CALLS]add[ARGS]{"x": oops} then [TOOL_CALLS]ping[ARGS]{}')
    assert calls_in(pieces) == [("ping", {})]
    assert text_in(pieces) == 'add{"x": oops} then '


@pytest.mark.parametrize("name", ["deepseek", "deepseek-v3.1"])
@pytest.mark.parametrize(
    "call",
    [
        f'{ONE}function{SEP}add\n```json\n{{"x": 1}}\n```{OVER}',
        f'{ONE}function{SEP}add\n```json\n{{\n  "x": 1\n}}\n```\n{OVER}',
        f'{ONE}add{SEP}{{"x": 1}}{OVER}',
        f'{ONE}add{SEP}\n{{"x":1}}\n{OVER}',
    ],
)
def test_deepseek_of_both_generations_is_read(name: str, call: str) -> None:
    tool_format = format_named(name, (BEGIN, END, ONE, OVER, SEP))
    for text in (BEGIN + call + END, f"{BEGIN}{call}\n{call}{END}", f"{BEGIN}\n{call}", call):
        pieces = parse_everyhow(tool_format, "看 {x}" + text)
        assert calls_in(pieces) == [ADD] * text.count(ONE), text
        assert text_in(pieces) == "看 {x}"


@pytest.mark.parametrize("text", [BEGIN, BEGIN + END, BEGIN + ONE + "add" + OVER, f"{ONE}add{SEP}[1]{OVER}", f"{SEP}x"])
def test_what_is_no_call_of_deepseek_is_text(text: str) -> None:
    assert parse_everyhow(format_named("deepseek"), text) == [Text(text)]


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ('{"name": "add", "parameters": {"x": 1}}', [ADD]),
        ('{"type": "function", "name": "add", "parameters": {"x": 1}}', [ADD]),
        ('<|python_tag|>{"name": "add", "parameters": {"x": 1}}', [ADD]),
        ('<|python_tag|> {"name": "unknown", "parameters": {}}', [("unknown", {})]),
        ('{"name": "add", "parameters": {"x": 1}}; {"name": "ping", "parameters": {}}', [ADD, ("ping", {})]),
        ('{"name": "add", "parameters": {"x": 1}};{"name": "ping"}', [ADD, ("ping", {})]),
        ('{"name": "add", "parameters": {"x": 1}}\n{"name": "ping", "parameters": null}', [ADD, ("ping", {})]),
        ('{"name": "add", "parameters": "{\\"x\\": 1}"}', [ADD]),
    ],
)
def test_llama_calls_are_read(text: str, calls: list[tuple[str, dict[str, Any]]]) -> None:
    tool_format = format_named("llama", ["<|python_tag|>"])
    assert calls_in(parse_everyhow(tool_format, text)) == calls
    pieces = parse_everyhow(tool_format, "Let me look.\n  " + text)
    assert calls_in(pieces) == calls and text_in(pieces) == "Let me look.\n  "


@pytest.mark.parametrize("name", ["llama", "json"])
@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Ada", "age": 36}',
        '{"name": "unknown", "parameters": {}}',
        'It is {"name": "ping", "parameters": {}} in JSON',
        '{"name": "add", "parameters": {"x": 1}',
        '{"name": "add", "parameters": [1]}',
        '{"name": "ping"; {"name": "ping"',
        "{\n{\n{",
        "{'name': 'ping'}",
        '{"name": "ping", "parameters": {}, "name": "add"}',
        '{"name": 7}',
        "{}",
    ],
)
def test_bare_objects_that_are_no_calls_are_text(name: str, text: str) -> None:
    pieces = parse_everyhow(format_named(name), text)
    assert not calls_in(pieces) and text_in(pieces) == text


def test_a_separator_without_a_call_behind_it_is_text() -> None:
    ping = json.dumps({"name": "ping", "parameters": {}})
    pieces = parse_everyhow(format_named("llama"), f"{ping}; that was it; {ping}")
    assert calls_in(pieces) == [("ping", {})] and text_in(pieces) == f"; that was it; {ping}"
    listed = parse_everyhow(format_named("mistral"), '[TOOL_CALLS] [{"name": "ping", "arguments": {}}, see]')
    assert calls_in(listed) == [("ping", {})] and text_in(listed) == ", see]"


def test_a_number_beyond_all_doubles_is_the_largest_of_them() -> None:
    [(_, arguments)] = calls_in(
        parse_everyhow(format_named("mistral"), '[TOOL_CALLS]add[ARGS]{"x": -1e1354, "y": 1e400}')
    )
    assert arguments == {"x": -1.7976931348623157e308, "y": 1.7976931348623157e308}
