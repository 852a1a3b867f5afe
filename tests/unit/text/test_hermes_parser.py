from __future__ import annotations

import json

import pytest

from call_texts import joined
from tenuto.text.formats.pieces import (
    CallArguments,
    CallFinished,
    CallStarted,
    ParsedPiece,
    Text,
)
from tenuto.text.tool_format import HermesFormat


def parse(*chunks: str) -> list[ParsedPiece]:
    parser = HermesFormat().parser()
    pieces = [piece for chunk in chunks for piece in parser.push(chunk)]
    return joined([*pieces, *parser.finish()])


def parse_everyhow(text: str) -> list[ParsedPiece]:
    """The parse, which has to be the same whole, by characters, and cut in two at every place."""
    whole = parse(text)
    assert parse(*text) == whole
    for cut in range(len(text)):
        assert parse(text[:cut], text[cut:]) == whole, (text[:cut], text[cut:])
    return whole


def call(name: str, arguments: str) -> list[ParsedPiece]:
    return [CallStarted(name), CallArguments(arguments), CallFinished(name, json.loads(arguments))]


def written(name: str, arguments: str) -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


@pytest.mark.parametrize(
    "arguments",
    [
        '{"guest":{"name":"Ada","tier":"gold"},"beds":[{"w":2}],"night":7}',
        '{"last": true}',
        '{"last": null}',
        '{"last": -1.5e3}',
        "{}",
        '{"text":"end } here \\" and ] too \\\\","opt":{"a":{"b":1}}}',
        '{"tag": "<tool_call></tool_call>", "c": "a<b"}',
        '{"城市": "São Paulo 你好"}',
        '{"emoji": "\\ud83d\\ude00"}',
    ],
)
def test_arguments_concatenate_to_their_text(arguments: str) -> None:
    assert parse_everyhow(written("book_room", arguments)) == call("book_room", arguments)


def test_an_empty_object_is_a_call_of_its_own() -> None:
    text = written("ping", "{}") + "\n" + written("add", '{"x":42}')
    assert parse_everyhow(text) == [*call("ping", "{}"), *call("add", '{"x":42}')]


def test_white_space_beside_the_tags_is_nobodys_text() -> None:
    text = (
        '<tool_call>\n{"name": "a", "arguments": {}}\n</tool_call>\n<tool_call> {"arguments": {"x": 1}, "name": "b"} '
    )
    assert parse_everyhow(text) == [*call("a", "{}"), *call("b", '{"x": 1}')]


def test_all_prose_is_kept_in_order() -> None:
    text = "before " + written("a", "{}") + " mid {x} " + written("b", '{"n": [1]}') + " after"
    assert parse_everyhow(text) == [
        Text("before "),
        *call("a", "{}"),
        Text(" mid {x} "),
        *call("b", '{"n": [1]}'),
        Text(" after"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "int main(void) { if (x) { return a[1]; } }",
        "a < b, <tool, <tool_cal> and </tool_call>",
        "<tool_call>",
        "<tool_call>nothing</tool_call>",
        "<tool_call>{'name': 'x'}</tool_call>",
        '<tool_call>{"name": "a"',
        '<tool_call>{"name": 7, "arguments": {}}</tool_call>',
        '<tool_call>{"arguments": {}}</tool_call>',
        '<tool_call>{"name": "", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "a", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "a", "arguments": 3}</tool_call>',
        '<tool_call>{"name": "a", "arguments": "no object"}</tool_call>',
        '<tool_call>{"name": "a" "b"}</tool_call>',
        '<tool_call>["name"]</tool_call>',
        "<tool_call> \n ",
        "<tool_call>" + " " * 100 + "x",
        "一段中文 {不是} 调用",
    ],
)
def test_what_is_no_call_comes_back_as_text(text: str) -> None:
    assert parse_everyhow(text) == [Text(text)]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('<tool_call>{"name": "a", "arguments": {"x": 1', '{"x": 1'),
        ('<tool_call>{"name": "a", "arguments": {"x": 1]}}</tool_call>', '{"x": 1'),
        ('<tool_call>{"name": "a", "arguments": {"x": NaN}}</tool_call>', '{"x": '),
        ('<tool_call>{"name": "a", "arguments": {"x" <b>', '{"x" '),
        ('<tool_call>{"name": "a", "arguments": {}, "name": "b"}</tool_call>', "{}"),
    ],
)
def test_a_call_that_breaks_after_it_started_comes_back_as_text_unfinished(text: str, arguments: str) -> None:
    assert parse_everyhow(text) == [CallStarted("a"), CallArguments(arguments), Text(text)]


def test_a_broken_call_does_not_hide_the_next() -> None:
    text = "<tool_call>{oops " + written("a", "{}")
    assert parse_everyhow(text) == [Text("<tool_call>{oops "), *call("a", "{}")]


def test_no_arguments_are_an_empty_object_and_a_string_of_json_is_read_once() -> None:
    assert parse_everyhow('<tool_call>{"name": "a"}</tool_call>') == call("a", "{}")
    assert parse_everyhow('<tool_call>{"name": "a", "arguments": null}</tool_call>') == call("a", "{}")
    text = '<tool_call>{"name": "a", "arguments": "{\\"x\\": \\"纽约\\"}"}</tool_call>'
    assert parse_everyhow(text) == call("a", '{"x": "纽约"}')


@pytest.mark.parametrize("escape", ["\\ud83d", "\\ude00", "\\ud83d\\ud83d", "\\uD83Dx", "\\ud83d\\n"])
def test_lone_surrogates_become_replacement_marks(escape: str) -> None:
    pieces = parse_everyhow(written("a", f'{{"x": "{escape}"}}'))
    arguments = "".join(p.text for p in pieces if isinstance(p, CallArguments))
    finished = pieces[-1]
    assert isinstance(finished, CallFinished)
    assert json.loads(arguments) == finished.arguments
    assert "\ufffd" in finished.arguments["x"] and finished.arguments["x"].encode("utf-8")


def test_only_what_could_be_a_tag_is_held_back() -> None:
    parser = HermesFormat().parser()
    assert parser.push("hello <") == [Text("hello ")]
    assert parser.push("b> ") == [Text("<b> ")]
    assert parser.push('x<tool_call>{"name": "a", "arguments": {"k"') == [
        Text("x"),
        CallStarted("a"),
        CallArguments('{"k"'),
    ]
    assert parser.push(': "v') == [CallArguments(': "v')]


def test_long_input_is_looked_at_once() -> None:
    for text in ("<tool_call>{" * 40_000, '<tool_call>{"a":' + "k=v," * 120_000, "<tool_call>" + "[" * 500_000):
        assert parse(text) == [Text(text)]
    nested = '{"x": ' + "[" * 100_000 + "]" * 100_000 + "}"
    assert "".join(p.text for p in parse(written("a", nested)) if isinstance(p, Text)) == written("a", nested)


def test_a_call_is_bounded_in_length() -> None:
    text = written("a", '{"x": "' + "y" * 1_100_000 + '"}')
    pieces = parse(*(text[i : i + 65_536] for i in range(0, len(text), 65_536)))
    assert pieces == parse(text) and isinstance(pieces[-1], Text) and pieces[-1].text == text
