from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from grammar_driver import Driven, drive

from embedded_tokenizer import embedded_tokenizer
from tenuto.errors import GrammarError, InvalidRequest
from tenuto.protocol.chat import NamedTool, ToolChoice
from tenuto.protocol.messages import COPIED, ToolSpec
from tenuto.text.grammar import LLGuidanceCompiler
from tenuto.text.tool_format import CallFinished, HermesFormat, Text

COPIED_STRING = {"type": "string", COPIED: True}


def tool(name: str, properties: dict[str, Any], *required: str, **others: Any) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "required": list(required), **others}
    return ToolSpec(name=name, description="", parameters=schema)


WEATHER = tool("get_weather", {"city": COPIED_STRING, "date": COPIED_STRING}, "city", "date")
ADD = tool("add", {"a": {"type": "number"}, "b": {"type": "integer"}}, "a")
QUESTIONS = ("Check New York's weather next Monday for me", "帮我看看纽约下周一的天气")


@pytest.fixture(scope="module")
def compiler() -> LLGuidanceCompiler:
    return LLGuidanceCompiler(embedded_tokenizer())


def written(name: str, arguments: str) -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


def weather(city: str, date: str = "next Monday") -> str:
    return written("get_weather", f'{{"city": "{city}", "date": "{date}"}}')


def admits(
    compiler: LLGuidanceCompiler,
    text: str,
    tools: tuple[ToolSpec, ...] = (WEATHER, ADD),
    choice: ToolChoice = "required",
    parallel: bool = False,
    copied_from: tuple[str, ...] = QUESTIONS,
) -> Driven | None:
    return drive(compiler, HermesFormat().grammar(tools, choice, parallel, copied_from), text)


def test_most_of_a_forced_weather_call_is_forced(compiler: LLGuidanceCompiler) -> None:
    driven = admits(compiler, weather("New York"), tools=(WEATHER,))
    assert driven is not None and driven.finished
    assert len(driven.ids) == 36 and driven.num_forced == 30
    assert list(driven.ids) == embedded_tokenizer().encode(weather("New York")), "forced ids are the canonical ones"


def test_prose_is_free_until_a_call_begins(compiler: LLGuidanceCompiler) -> None:
    text = 'Sure: {x} <tool_cal> 好的。\n"' + weather("纽约", "下周一")
    driven = admits(compiler, text, choice="auto")
    assert driven is not None and driven.finished and driven.num_forced >= 20
    prose = admits(compiler, "没有调用 <b> {}", choice="auto")
    assert prose is not None and prose.may_end and not prose.finished and prose.num_forced == 0
    assert admits(compiler, "Sure <tool_call>whatever", choice="auto") is None


def test_prose_is_refused_where_a_call_is_required(compiler: LLGuidanceCompiler) -> None:
    assert admits(compiler, "Sure", choice="required") is None
    assert admits(compiler, written("add", '{"a": 1}'), choice=NamedTool(name="get_weather")) is None
    assert admits(compiler, written("add", '{"a": 1}'), choice=NamedTool(name="add")) is not None


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_a_second_call_only_if_calls_may_be_parallel(compiler: LLGuidanceCompiler, choice: ToolChoice) -> None:
    two = weather("纽约") + "\n" + written("add", '{"a": -1.5, "b": 2}')
    assert admits(compiler, two, choice=choice, parallel=False) is None
    driven = admits(compiler, two, choice=choice, parallel=True)
    assert driven is not None and driven.may_end and not driven.finished


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_a_turn_ends_with_the_last_call_it_may_make(compiler: LLGuidanceCompiler, choice: ToolChoice) -> None:
    one = written("add", '{"a": true}')
    flag = tool("add", {"a": {"type": "boolean"}}, "a")
    for max_calls in (1, 3):
        spec = HermesFormat(max_calls).grammar((flag,), choice, True, ())
        full = drive(compiler, spec, "\n".join([one] * max_calls))
        assert full is not None and full.finished
        assert drive(compiler, spec, "\n".join([one] * (max_calls + 1))) is None
        fewer = drive(compiler, spec, one)
        assert fewer is not None and fewer.may_end


ODD_NAMES = ['a"b', "a\\b", "a/b", "  ", "</tool_call>", "<|im_end|>", "%json", '"; start: "', "{{x}}", "三花", "😀"]
ODD_NAMES += [chr(code) for code in (*range(32), *range(127, 161), 0x301, 0x2028, 0x202E, 0xFEFF, 0xFFFF)]


def test_any_name_can_be_written_and_read_back(compiler: LLGuidanceCompiler) -> None:
    for name in ODD_NAMES:
        spec = HermesFormat().grammar([tool(name, {"a": {"const": 1}}, "a")], "required", False, ())
        grammar = compiler.compile(spec)
        ids = grammar.forced()
        assert all(grammar.accept(token) for token in ids) and grammar.finished
        parser = HermesFormat().parser()
        pieces = [*parser.push(embedded_tokenizer().decode(ids)), *parser.finish()]
        assert CallFinished(name, {"a": 1}) in pieces, repr(name)


def test_odd_characters_of_the_conversation_can_be_copied_by_a_pattern(compiler: LLGuidanceCompiler) -> None:
    given = tool("t", {"x": {**COPIED_STRING, "pattern": "a.b"}}, "x")
    for code in (0x22, 0x5C, 0x80, 0x9F, 0x301, 0xFEFF, 0x1F600):
        text = f"a{chr(code)}b"
        value = json.dumps(text, ensure_ascii=False)
        driven = admits(compiler, written("t", f'{{"x": {value}}}'), (given,), copied_from=(text, "a\x7fb"))
        assert driven is not None, hex(code)


def test_optional_arguments_may_be_left_out_and_others_are_refused(compiler: LLGuidanceCompiler) -> None:
    assert admits(compiler, written("add", '{"a": 1}')) and admits(compiler, written("add", '{"a": 1, "b": 2}'))
    assert admits(compiler, written("add", "{}")) is None
    assert admits(compiler, written("add", '{"a": 1, "c": 2}')) is None
    mixed = tool("t", {"x": COPIED_STRING, "y": {"type": "integer"}, "z": COPIED_STRING}, "y")
    for arguments in ('{"y": 1}', '{"x": "me", "y": 1}', '{"y": 1, "z": "me"}', '{"x": "me", "y": 1, "z": "我"}'):
        assert admits(compiler, written("t", arguments), tools=(mixed,)), arguments
    for arguments in ("{}", '{"x": "me"}', '{"y": 1, "x": "me"}', '{, "y": 1}', '{"y": 1, }'):
        assert admits(compiler, written("t", arguments), tools=(mixed,)) is None, arguments


def test_white_space_is_fixed(compiler: LLGuidanceCompiler) -> None:
    for arguments in ('{"a":1}', '{"a":  1}', '{ "a": 1}', '{"a": 1\n}', '{"a": 1,"b": 2}'):
        assert admits(compiler, written("add", arguments)) is None, arguments


@pytest.mark.parametrize(
    "value",
    ["New York", "New York's", "New", "York's weather", "Monday for me", "纽约", "纽约下周一的天气", "周一", "me"],
)
def test_copies_are_admitted(compiler: LLGuidanceCompiler, value: str) -> None:
    assert admits(compiler, weather(value))


@pytest.mark.parametrize(
    "value",
    ["", " ", "Paris", "Yor", "ew York", " New York", "New York ", "NewYork", "me帮", "'s weather", "York New", "天上"],
)
def test_what_is_no_copy_is_refused(compiler: LLGuidanceCompiler, value: str) -> None:
    assert admits(compiler, weather(value)) is None


@pytest.mark.parametrize(
    ("text", "value", "is_copy"),
    [
        ('He said "go, now".', "go, now", True),
        ('He said "go, now".', 'said \\"go', True),
        ('He said "go, now".', '\\"go', False),
        ("C:\\temp\\x", "C:\\\\temp", True),
        ("Is it in Rome?", "Rome?", False),
        ("Is it in Rome?", "Rome", True),
        ("去“北京”吗？", "北京", True),
        ("去“北京”吗？", "“北京", False),
        ("open /etc/hosts for $5", "/etc/hosts", True),
        ("one\ntwo", "one\\ntwo", False),
        ("one\ntwo", "two", True),
        ("see a\ud800b", "a\ufffdb", True),
        ("😀 ok", "😀 ok", True),
    ],
)
def test_edges_and_escapes_of_copies(compiler: LLGuidanceCompiler, text: str, value: str, is_copy: bool) -> None:
    assert (admits(compiler, weather(value, "ok"), copied_from=(text, "ok")) is not None) == is_copy


def test_copies_inside_arrays_unions_objects_and_references(compiler: LLGuidanceCompiler) -> None:
    items = {"anyOf": [COPIED_STRING, {"type": "null"}]}
    place = {"type": "object", "properties": {"city": COPIED_STRING, "kind": {"$ref": "#/$defs/Kind"}}}
    properties = {
        "list": {"type": "array", "items": items, "minItems": 1, "maxItems": 2},
        "place": {"$ref": "#/$defs/Place"},
    }
    deep = tool("t", properties, "list", **{"$defs": {"Place": place, "Kind": {"enum": ["town", "村"]}}})
    for arguments in (
        '{"list": ["纽约", null]}',
        '{"list": [null], "place": {"city": "New York", "kind": "村"}}',
        '{"list": [null], "place": {}}',
    ):
        assert admits(compiler, written("t", arguments), tools=(deep,)), arguments
    for arguments in (
        '{"list": []}',
        '{"list": ["Oslo"]}',
        '{"list": [null, null, null]}',
        '{"list": [null], "place": {"kind": "x"}}',
    ):
        assert admits(compiler, written("t", arguments), tools=(deep,)) is None, arguments


def test_a_reference_to_a_part_of_a_definition_is_followed(compiler: LLGuidanceCompiler) -> None:
    defs = {"$defs": {"Place": {"type": "object", "properties": {"city": COPIED_STRING}}}}
    t = tool("t", {"x": {"$ref": "#/$defs/Place/properties/city"}}, "x", **defs)
    assert admits(compiler, written("t", '{"x": "纽约"}'), tools=(t,))
    assert admits(compiler, written("t", '{"x": "Oslo"}'), tools=(t,)) is None


def test_schema_keywords_are_enforced(compiler: LLGuidanceCompiler) -> None:
    schema = {
        "n": {"type": "integer", "minimum": 3, "maximum": 12},
        "e": {"enum": ["a", "b"]},
        "o": {"type": "object", "properties": {}},
    }
    t = tool("t", schema, "n", "e")
    assert admits(compiler, written("t", '{"n": 12, "e": "a"}'), tools=(t,))
    assert admits(compiler, written("t", '{"n": 4, "e": "a", "o": {}}'), tools=(t,))
    for arguments in ('{"n": 13, "e": "a"}', '{"n": 4, "e": "c"}', '{"n": 4, "e": "a", "o": {"x": 1}}'):
        assert admits(compiler, written("t", arguments), tools=(t,)) is None, arguments


def test_a_tool_without_parameters_takes_an_empty_object(compiler: LLGuidanceCompiler) -> None:
    for parameters in ({}, {"type": "object", "properties": {}}):
        ping = ToolSpec(name='ping "x" 平', description="", parameters=parameters)
        text = '<tool_call>{"name": "ping \\"x\\" 平", "arguments": {}}</tool_call>'
        driven = admits(compiler, text, tools=(ping,))
        assert driven is not None and driven.num_forced == len(driven.ids)


def test_a_long_conversation_can_be_copied_from(compiler: LLGuidanceCompiler) -> None:
    noise = " ".join(f"word{i} | 第{i}条，" for i in range(4000))
    driven = admits(compiler, weather("New York", "第2345条"), (WEATHER,), copied_from=(noise, *QUESTIONS, noise))
    assert driven is not None and driven.num_forced > 25
    assert admits(compiler, weather("New York", "第9999条"), (WEATHER,), copied_from=(noise, *QUESTIONS)) is None
    newest = ("x" * 300_000, "Oslo now")
    assert admits(compiler, weather("Oslo", "now"), (WEATHER,), copied_from=newest)


def test_without_a_text_to_copy_from_no_call_is_invented(compiler: LLGuidanceCompiler) -> None:
    for nothing in ((), ("",), (" ?! \n",)):
        assert admits(compiler, "Which city?", (WEATHER,), "auto", copied_from=nothing)
        assert admits(compiler, weather("x"), (WEATHER,), "auto", copied_from=nothing) is None
        assert admits(compiler, written("add", '{"a": 1}'), copied_from=nothing)
        with pytest.raises(GrammarError, match="no text to copy"):
            HermesFormat().grammar([WEATHER], "required", False, nothing)
    long = "Which <city>, <tool_ca or </tool_call>? 哪个城市？ " * 50
    assert admits(compiler, long, (WEATHER,), "auto", copied_from=())
    optional = tool("t", {"x": COPIED_STRING, "y": {"type": "integer"}})
    assert admits(compiler, written("t", '{"y": 1}'), (optional,), copied_from=())


def test_an_unknown_tool_name_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="'nope'"):
        HermesFormat().grammar([WEATHER], NamedTool(name="nope"), False, QUESTIONS)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "array", "items": COPIED_STRING, "uniqueItems": True}, r"'t': the parameters\.x .* uniqueItems"),
        ({"$ref": "https://elsewhere/x"}, r"'t': schema at the parameters\.x\[\]/\$ref: .*"),
        ({"type": "string", "format": "no-such-format"}, "'t'.*no-such-format"),
        ({"type": "string", "pattern": "(?=x)"}, "'t'"),
        ({"not": {"type": "string"}}, "'t'.*not"),
    ],
)
def test_what_no_grammar_can_hold_is_refused_by_name(schema: dict[str, Any], message: str) -> None:
    properties = {"x": schema, "y": COPIED_STRING}
    if "$ref" in schema:
        properties["x"] = {"anyOf": [COPIED_STRING, {"type": "array", "items": {"anyOf": [schema, COPIED_STRING]}}]}
    with pytest.raises(GrammarError, match=message):
        HermesFormat().grammar([msgspec.structs.replace(tool("t", properties), strict=True)], "auto", True, QUESTIONS)


def test_an_odd_field_of_a_tool_is_relaxed_and_told_and_all_else_is_held(compiler: LLGuidanceCompiler) -> None:
    """As lists of tools from elsewhere have it: five tools, one with an odd pattern, one with an unknown format."""
    odd = tool("odd", {"a": {"type": "string", "pattern": r"(?=x)\d"}, "b": {"type": "integer", "maximum": 3}})
    other = tool("other", {"p": {"type": "string", "format": "path"}, "q": {"type": "string", "pattern": r"\d"}})
    sets = tool("sets", {"s": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}})
    tools = [WEATHER, odd, other, sets, ADD]
    spec = HermesFormat().grammar(tools, "required", False, QUESTIONS)
    assert [r.path for r in spec.relaxed] == [
        "odd: #/properties/a/pattern",
        "other: #/properties/p/format",
        "sets: #/properties/s/uniqueItems",
    ]
    assert "look-ahead" in spec.relaxed[0].reason and "path" in spec.relaxed[1].reason
    for text in (
        written("odd", '{"a": "北京", "b": 3}'),
        written("other", '{"p": "/etc", "q": "x1y"}'),
        written("sets", '{"s": [1, 1]}'),
        weather("New York"),
    ):
        assert drive(compiler, spec, text), text
    for text in (
        written("odd", '{"a": 1, "b": 3}'),
        written("odd", '{"a": "x", "b": 4}'),
        written("other", '{"p": "", "q": "xy"}'),
        written("sets", '{"s": ["1"]}'),
        weather("Rome"),
    ):
        assert drive(compiler, spec, text) is None, text


def test_what_the_library_refuses_is_relaxed_where_it_stands(compiler: LLGuidanceCompiler) -> None:
    overlap = {"type": "object", "patternProperties": {"^a": {"type": "integer"}, "b$": {"type": "string"}}}
    spec = HermesFormat().grammar([tool("t", {"x": overlap, "y": {"type": "null"}})], "required", False, ())
    assert [r.path for r in spec.relaxed] == ["t: #/properties/x"] and "disjoint" in spec.relaxed[0].reason
    assert drive(compiler, spec, written("t", '{"x": {"ab": true}, "y": null}'))
    assert drive(compiler, spec, written("t", '{"x": [], "y": null}')) is None
    assert drive(compiler, spec, written("t", '{"x": {}, "y": 1}')) is None


def test_a_schema_that_copies_and_contains_itself_is_refused() -> None:
    node = {"type": "object", "properties": {"name": COPIED_STRING, "next": {"$ref": "#/$defs/Node"}}}
    with pytest.raises(GrammarError, match="contains itself"):
        HermesFormat().grammar(
            [tool("t", {"n": {"$ref": "#/$defs/Node"}}, **{"$defs": {"Node": node}})], "auto", True, QUESTIONS
        )


def test_what_the_grammar_makes_the_parser_reads() -> None:
    parser = HermesFormat().parser()
    pieces = [*parser.push("Moment. " + weather("纽约", "下周一")), *parser.finish()]
    assert pieces[0] == Text("Moment. ")
    assert pieces[-1] == CallFinished("get_weather", {"city": "纽约", "date": "下周一"})
