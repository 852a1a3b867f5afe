"""What a copied string may be asked besides: patterns, lengths, what it must not contain."""

from __future__ import annotations

from typing import Any

import pytest
from grammar_driver import drive

from embedded_tokenizer import embedded_tokenizer
from tenuto.errors import GrammarError
from tenuto.protocol.messages import COPIED, ToolSpec
from tenuto.text import copied
from tenuto.text.grammar import LLGuidanceCompiler
from tenuto.text.tool_format import HermesFormat

ENGLISH_DATE = "(?i:((this|next) )?(mon|tues)day|today|tomorrow|the day after tomorrow)"
DATE = f"{ENGLISH_DATE}|今天|明天|(大)?后天|(下|这)?周[一二三四五六日]"
NUMBER = r"-?[0-9]+(\.[0-9]+)?"
SUM = rf"{NUMBER}( ?(\+|加|plus) ?{NUMBER})+"


@pytest.fixture(scope="module")
def compiler() -> LLGuidanceCompiler:
    return LLGuidanceCompiler(embedded_tokenizer())


def admits(compiler: LLGuidanceCompiler, schema: dict[str, Any], value: str, *texts: str) -> bool:
    parameters = {"type": "object", "properties": {"x": schema}, "required": ["x"]}
    tools = (ToolSpec(name="t", description="", parameters=parameters),)
    grammar = HermesFormat().grammar(tools, "auto", False, texts)
    written = f'<tool_call>{{"name": "t", "arguments": {{"x": "{value}"}}}}</tool_call>'
    return drive(compiler, grammar, written) is not None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Check New York's weather next Monday for me", ["next Monday"]),
        ("帮我看看纽约下周一的天气", ["下周一"]),
        (
            "The Day After Tomorrow, or on Tuesday? 大后天。后天",
            ["The Day After Tomorrow", "Tuesday", "大后天", "后天"],
        ),
        ("today today TODAY", ["today", "TODAY"]),
        ("next\nMonday", ["Monday"]),
        ("Mondays are for the yesterday's tomorrows", []),
        ("", []),
    ],
)
def test_matches_are_leftmost_longest_and_of_whole_chunks(text: str, found: list[str]) -> None:
    assert copied.matches(DATE, [text]) == found


def test_matches_may_hold_what_json_escapes() -> None:
    assert copied.matches(r'"[a-z]+"|[a-z]\\[a-z]', ['say "hi" or c\\d']) == ['"hi"', "c\\d"]
    assert copied.matches(SUM, ["What is 1.5 + 2+-3?", "12.5加30等于多少？", "你好"]) == ["1.5 + 2+-3", "12.5加30"]


def test_an_expression_that_backtracking_would_never_finish_is_harmless() -> None:
    assert copied.matches("(a+)+b|(a|aa)+c", [" ".join(["a" * 40] * 90)]) == []


def test_with_a_pattern_only_its_matches_are_admitted(compiler: LLGuidanceCompiler) -> None:
    schema = {"type": "string", COPIED: True, "pattern": f"^({DATE})$"}
    text = "帮我看看纽约下周一的天气, or tomorrow"
    assert admits(compiler, schema, "下周一", text)
    assert admits(compiler, schema, "tomorrow", text)
    for value in ("周一", "纽约", "today", "", "下周一的"):
        assert not admits(compiler, schema, value, text), value


def test_a_union_with_fixed_values_stays_when_nothing_matches(compiler: LLGuidanceCompiler) -> None:
    schema = {"anyOf": [{"type": "string", COPIED: True, "pattern": DATE}, {"enum": ["today", "今天"]}]}
    assert admits(compiler, schema, "今天", "巴黎天气")
    assert not admits(compiler, schema, "明天", "巴黎天气")
    assert admits(compiler, schema, "明天", "巴黎明天天气")


def test_a_tool_whose_required_copy_matches_nothing_cannot_be_called(compiler: LLGuidanceCompiler) -> None:
    schema = {"type": "string", COPIED: True, "pattern": SUM}
    assert admits(compiler, schema, "1 plus 2", "What is 1 plus 2?")
    assert not admits(compiler, schema, "1", "你好 1")
    grammar = HermesFormat().grammar(
        [ToolSpec(name="t", description="", parameters={"properties": {"x": schema}, "required": ["x"]})],
        "auto",
        False,
        ["你好"],
    )
    assert drive(compiler, grammar, "你好！") is not None


def test_lengths_count_characters_not_escapes(compiler: LLGuidanceCompiler) -> None:
    schema = {"type": "string", COPIED: True, "minLength": 2, "maxLength": 4}
    text = '北京 a"b Paris'
    for value, fits in (("北京", True), ("北", False), ('a\\"b', True), ("Paris", False)):
        assert admits(compiler, schema, value, text) == fits, value


def test_the_newest_text_that_holds_a_copy_wins(compiler: LLGuidanceCompiler) -> None:
    schema = {"type": "string", COPIED: "newest", "pattern": DATE}
    texts = ("北京今天天气怎么样？", "Beijing, Monday: rain", "And tomorrow?", "Thanks.")
    assert admits(compiler, schema, "tomorrow", *texts)
    for older in ("今天", "Monday"):
        assert not admits(compiler, schema, older, *texts), older
    plain = {"type": "string", COPIED: "newest"}
    assert admits(compiler, plain, "纽约", "北京", "纽约", "？")
    assert not admits(compiler, plain, "北京", "北京", "纽约", "？")


def test_what_a_copy_must_not_contain(compiler: LLGuidanceCompiler) -> None:
    schema = {"type": "string", COPIED: True, "minLength": 2, "not": {"pattern": DATE}}
    assert admits(compiler, schema, "大连", "明天大连")
    assert not admits(compiler, schema, "明天大连", "明天大连")
    assert admits(compiler, schema, "New York", "New York tomorrow")
    assert not admits(compiler, schema, "York tomorrow", "New York tomorrow")
    assert not admits(compiler, schema, "明天", "明天")  # nothing is left over


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({COPIED: "oldest"}, 'must be true or "newest"'),
        ({"format": "date"}, r"'t': the parameters\.x .* format"),
        ({"enum": ["a"]}, r"the parameters\.x .* enum"),
        ({"not": {"type": "number"}}, "a `not` other than of a pattern"),
        ({"pattern": "a", "minLength": 3}, "into the pattern"),
        ({"pattern": "(unclosed"}, r"the parameters\.x: its pattern cannot be compiled"),
        ({"pattern": "x" * 2000}, "at most 1000"),
        ({"pattern": 3}, "must be a regular expression"),
        ({"not": {"pattern": "(unclosed"}}, "its pattern cannot be compiled"),
    ],
)
def test_what_a_copy_cannot_be_asked_is_refused_by_name(keywords: dict[str, Any], message: str) -> None:
    parameters = {"type": "object", "properties": {"x": {"type": "string", COPIED: True, **keywords}}}
    with pytest.raises(GrammarError, match=message):
        HermesFormat().grammar([ToolSpec(name="t", description="", parameters=parameters)], "auto", True, ["a b"])


def test_prose_does_not_begin_with_a_made_up_result(compiler: LLGuidanceCompiler) -> None:
    schema = {"type": "string", COPIED: True}
    tools = [ToolSpec(name="t", description="", parameters={"properties": {"x": schema}, "required": ["x"]})]
    grammar = HermesFormat().grammar(tools, "auto", False, ["Oslo"])
    assert drive(compiler, grammar, "<tool_response>sunny") is None
    assert drive(compiler, grammar, " <tool_response>") is None
    assert drive(compiler, grammar, "A <tool_response> is <b>not</b> mine") is not None
    assert drive(compiler, grammar, "<b>bold</b> {x} 你好") is not None
