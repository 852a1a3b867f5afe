"""The grammars of all tool-call formats: what they make, the parser reads; what they must not, they do not."""

from __future__ import annotations

import random
from typing import Any

import pytest
from grammar_driver import Driven, drive

from call_texts import NAMES, calls_in, format_named, parse, text_in, tool
from embedded_tokenizer import embedded_tokenizer
from grammar_walk import random_walk
from tenuto.errors import GrammarError, InvalidRequest
from tenuto.protocol.chat import NamedTool, ToolChoice
from tenuto.protocol.grammar import GrammarSpec
from tenuto.protocol.messages import COPIED, ToolSpec
from tenuto.text.formats.known import FORMATS
from tenuto.text.grammar import LLGuidanceCompiler
from tenuto.text.tool_format import TextFormat

SAY = tool(
    "say",
    {
        "text": {"type": "string"},
        "times": {"type": "integer"},
        "loud": {"type": "boolean"},
        "unit": {"enum": ["C", "F"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "note": {"type": ["string", "null"]},
    },
    "text",
)
ADD = tool("add", {"x": {"type": "number"}, "y": {"type": ["integer", "null"]}}, "x", "y")
PING = tool("ping", {})
TOOLS = (SAY, ADD, PING)
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("say", {"text": '纽约 "x" \\ \'s\n😀 {]', "times": 3, "loud": True, "unit": "C", "tags": ["a", "b"]}),
    ("ping", {}),
    ("add", {"x": 1.5, "y": None}),
]
PROSE = "Let me look {x} [y], <tool_cal> 好的。\n"


@pytest.fixture(scope="module")
def compiler() -> LLGuidanceCompiler:
    return LLGuidanceCompiler(embedded_tokenizer())


def admits(
    compiler: LLGuidanceCompiler, name: str, text: str, choice: ToolChoice, parallel: bool = True
) -> Driven | None:
    return drive(compiler, format_named(name).grammar(TOOLS, choice, parallel, ()), text)


@pytest.mark.parametrize("name", NAMES)
def test_calls_are_admitted_as_they_are_written(compiler: LLGuidanceCompiler, name: str) -> None:
    text = format_named(name).write(CALLS)
    for choice in ("auto", "required"):
        driven = admits(compiler, name, text, choice)
        assert driven is not None and driven.may_end
        assert admits(compiler, name, text, choice, parallel=False) is None
        single = admits(compiler, name, format_named(name).write(CALLS[:1]), choice, parallel=False)
        assert single is not None and single.finished, "after the only call nothing can follow"
    prose = admits(compiler, name, PROSE + text, "auto")
    assert prose is not None and prose.may_end


@pytest.mark.parametrize("name", NAMES)
def test_prose_is_free_and_refused_where_a_call_is_required(compiler: LLGuidanceCompiler, name: str) -> None:
    driven = admits(compiler, name, PROSE, "auto")
    assert driven is not None and driven.may_end and not driven.finished and driven.num_forced == 0
    assert admits(compiler, name, PROSE, "required") is None
    ping = format_named(name).write([("ping", {})])
    assert admits(compiler, name, ping, NamedTool(name="add")) is None
    named = admits(compiler, name, ping, NamedTool(name="ping"))
    assert named is not None and named.num_forced >= len(named.ids) - 1, "but for whether to go on, all of it is forced"
    with pytest.raises(InvalidRequest, match="not among the tools"):
        format_named(name).grammar(TOOLS, NamedTool(name="nope"), True, ())


@pytest.mark.parametrize("name", NAMES)
def test_the_skeleton_of_a_call_is_forced(compiler: LLGuidanceCompiler, name: str) -> None:
    text = format_named(name).write([("add", {"x": 1.5, "y": None})])
    spec = format_named(name).grammar((ADD,), "required", False, ())
    driven = drive(compiler, spec, text)
    assert driven is not None and driven.finished
    assert driven.num_forced >= len(driven.ids) - 7, "of 1.5 and null each token is free, and where they end"


@pytest.mark.parametrize("name", NAMES)
def test_what_does_not_fit_the_schema_is_refused(compiler: LLGuidanceCompiler, name: str) -> None:
    tool_format = format_named(name)
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("say", {}),
        ("say", {"text": "a", "unit": "K"}),
        ("say", {"text": "a", "times": 1.5}),
        ("say", {"text": "a", "other": 1}),
        ("add", {"x": True, "y": 1}),
        ("add", {"x": 1}),
        ("unknown", {}),
    ]
    for call in wrong:
        assert admits(compiler, name, tool_format.write([call]), "required") is None, call
        assert admits(compiler, name, tool_format.write([("ping", {}), call]), "auto") is None, call
    assert admits(compiler, name, tool_format.write([("say", {"text": "a", "note": None})]), "required")


@pytest.mark.parametrize("name", NAMES)
def test_a_turn_ends_with_the_last_call_it_may_make(compiler: LLGuidanceCompiler, name: str) -> None:
    for most in (1, 3):
        tool_format = TextFormat(FORMATS[name], most)
        spec = tool_format.grammar((PING,), "auto", True, ())
        driven = drive(compiler, spec, tool_format.write([("ping", {})] * most))
        assert driven is not None and driven.finished
        assert drive(compiler, spec, tool_format.write([("ping", {})] * (most + 1))) is None


@pytest.mark.parametrize("name", NAMES)
def test_random_walks_under_the_grammar_are_calls(compiler: LLGuidanceCompiler, name: str) -> None:
    tool_format = format_named(name)
    grammar = compiler.compile(tool_format.grammar(TOOLS, "required", True, ()))
    rng = random.Random(7)
    num_read = 0
    for _ in range(6):
        ids = random_walk(grammar.fork(), rng, 300)
        if ids is None:
            continue
        pieces = parse(tool_format, [embedded_tokenizer().decode(ids)], TOOLS)
        assert calls_in(pieces) and text_in(pieces) == "", embedded_tokenizer().decode(ids)
        for called, arguments in calls_in(pieces):
            declared = next(one for one in TOOLS if one.name == called)
            assert set(declared.parameters["required"]) <= arguments.keys() <= declared.parameters["properties"].keys()
        num_read += 1
    assert num_read >= 2


@pytest.mark.parametrize("name", NAMES)
def test_a_reply_of_its_own_form_or_calls(compiler: LLGuidanceCompiler, name: str) -> None:
    reply = GrammarSpec(kind="choices", source='["yes", "no"]')
    spec = format_named(name).grammar(TOOLS, "auto", True, (), reply)
    assert drive(compiler, spec, "yes") and drive(compiler, spec, format_named(name).write(CALLS))
    assert drive(compiler, spec, "maybe") is None and drive(compiler, spec, PROSE) is None


@pytest.mark.parametrize("name", NAMES)
def test_strings_can_be_copied_from_the_conversation(compiler: LLGuidanceCompiler, name: str) -> None:
    tool_format = format_named(name)
    given = tool("t", {"city": {"type": "string", COPIED: True}, "n": {"type": "integer"}}, "city")
    said = ('Check "New York\'s" weather', "帮我看看纽约")
    spec = tool_format.grammar([given], "required", False, said)
    for city in ("New York", "纽约"):
        assert drive(compiler, spec, tool_format.write([("t", {"city": city, "n": 1})])), city
    for city in ("Paris", "ew York", ""):
        assert drive(compiler, spec, tool_format.write([("t", {"city": city})])) is None, city
    with pytest.raises(GrammarError, match="no text to copy"):
        tool_format.grammar([given], "required", False, ())
    nothing = tool_format.grammar([given], "auto", False, ())
    assert drive(compiler, nothing, PROSE)
    assert drive(compiler, nothing, tool_format.write([("t", {"city": "x"})])) is None


def test_bare_strings_are_held_to_their_schema(compiler: LLGuidanceCompiler) -> None:
    xml = format_named("xml")
    held = {
        "date": ({"type": "string", "format": "date"}, "2026-11-30", "30 November"),
        "pattern": ({"type": "string", "pattern": "^a+$"}, "aaa", "ab"),
        "lengths": ({"type": "string", "minLength": 2, "maxLength": 3}, "你好", "a"),
        "constant": ({"const": "one"}, "one", "two"),
    }
    for what, (schema, right, wrong) in held.items():
        spec = xml.grammar([tool("t", {"v": schema}, "v")], "required", False, ())
        assert drive(compiler, spec, xml.write([("t", {"v": right})])), what
        assert drive(compiler, spec, xml.write([("t", {"v": wrong})])) is None, what
        assert not spec.relaxed
    free = xml.grammar([tool("t", {"v": {"type": "string"}}, "v")], "required", False, ())
    assert drive(compiler, free, xml.write([("t", {"v": "</parameter>"})])) is None, "it would end the value"
    assert drive(compiler, free, xml.write([("t", {"v": "</parameter"})]))


@pytest.mark.parametrize("name", ["xml", "pythonic"])
def test_conditions_over_all_parameters_are_told_or_refused(name: str) -> None:
    properties = {"a": {"type": "integer"}}
    loose = tool("t", properties, "a", "b", minProperties=1)
    spec = format_named(name).grammar([loose], "required", False, ())
    assert [relaxed.path for relaxed in spec.relaxed] == ["t: #", "t: #/required"]
    strict = ToolSpec(name="t", description="", parameters=loose.parameters, strict=True)
    with pytest.raises(GrammarError, match="minProperties"):
        format_named(name).grammar([strict], "required", False, ())


@pytest.mark.parametrize("name", ["xml", "pythonic", "mistral-args", "deepseek", "deepseek-v3.1"])
@pytest.mark.parametrize("called", ["two words", "a\nb", 'quo"te>', ""])
def test_a_name_that_cannot_be_written_is_refused(name: str, called: str) -> None:
    with pytest.raises(GrammarError, match="cannot write such a name"):
        format_named(name).grammar([tool(called, {})], "auto", False, ())


def test_python_writes_its_own_words(compiler: LLGuidanceCompiler) -> None:
    spec = format_named("pythonic").grammar(TOOLS, "required", False, ())
    for text in (
        '[say(text="a", loud=True)]',
        "[add(x=1, y=None)]",
        '[say(text="a", note=None)]',
        '[say(text="a", note="b")]',
    ):
        assert drive(compiler, spec, text), text
    for text in ('[say(text="a", loud=true)]', "[say(text='a')]", '[say( text="a")]', '[say(loud=True, text="a")]'):
        assert drive(compiler, spec, text) is None, text


def test_declared_tools_in_hundreds_compile(compiler: LLGuidanceCompiler) -> None:
    tools = [tool(f"tool_{i}", {"a": {"type": "string"}, "b": {"type": "integer"}}, "a") for i in range(120)]
    for name in NAMES:
        tool_format = format_named(name)
        spec = tool_format.grammar(tools, "auto", True, ())
        assert drive(compiler, spec, PROSE + tool_format.write([("tool_77", {"a": "x", "b": 2})])), name
