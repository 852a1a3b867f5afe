"""Regular expressions, Lark and choices: what they admit, and how they are refused."""

from __future__ import annotations

import json

import pytest
from grammar_driver import drive

from embedded_tokenizer import embedded_tokenizer
from tenuto.errors import GrammarError
from tenuto.protocol.grammar import GrammarSpec
from tenuto.text.grammar import LLGuidanceCompiler


@pytest.fixture(scope="module")
def compiler() -> LLGuidanceCompiler:
    return LLGuidanceCompiler(embedded_tokenizer())


def admits(compiler: LLGuidanceCompiler, kind: str, source: str, text: str) -> bool:
    driven = drive(compiler, GrammarSpec(kind=kind, source=source), text)  # type: ignore[arg-type]
    return driven is not None and driven.may_end


REGEXES = [
    (r"\d{3}", ["123"], ["12", "1234", "٣٣٣"]),
    ("a|b", ["a", "b"], ["ab", "xa"]),
    ("^(foo|ba[rz])+$", ["foobar", "baz"], ["fo"]),
    ("你好啊|[一-龥]{2}", ["你好啊", "一二"], ["你", "ab", "一二三"]),
    (r"a.c", ["abc", "a/c"], ["a\nc", "ac", "a\u2029c"]),
    (r"[^\d\s]+", ["ab_", "é"], ["a1", "a b"]),
    (r"\w+\.\w+", ["a_1.b"], ["a.é", "ab"]),
    (r"(?<y>\d)(?P<m>x)(?:y)?", ["1x", "1xy"], ["1"]),
    (r"a*?b+?", ["b", "aab"], ["a"]),
    (r"\u4f60\x41\u{1F600}", ["你A😀"], ["你a"]),
    (r"\p{Lu}[\p{Script=Han}x]", ["É你", "Ax"], ["éx"]),
    (r"\t\/[\b\]\-]", ["\t/]", "\t/-"], ["t/]"]),
    (r"x{|{a}|a{2}", ["x{", "{a}", "aa"], ["a{2}"]),
    ("(?s:a.b)", ["a\nb"], ["ab"]),
]


@pytest.mark.parametrize(("source", "good", "bad"), REGEXES)
def test_a_regular_expression_matches_the_whole_text(
    compiler: LLGuidanceCompiler, source: str, good: list[str], bad: list[str]
) -> None:
    for text in good:
        assert admits(compiler, "regex", source, text), text
    for text in bad:
        assert not admits(compiler, "regex", source, text), text


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("(?=a)b", "character 0: look-ahead"),
        ("a(?!b)", "character 1: look-ahead"),
        ("x(?<=a)b", "character 1: look-behind"),
        ("(?<!a)b", "look-behind"),
        (r"(a)\1", "character 3: a back-reference"),
        (r"(?<n>a)\k<n>", "back-reference"),
        (r"\bword", "character 0: a word boundary"),
        (r"\Aab\Z", "use \\^"),
        ("(?i)a", "flags"),
        ("(?>a)", "atomic"),
        ("a++", "character 1: a possessive"),
        ("(unclosed", "character 0: this group is not closed"),
        ("a)", "character 1: `\\)` closes nothing"),
        ("[a", "character 0: this set is not closed"),
        ("[b-a]", "wrong order"),
        ("[]a]", "empty set"),
        ("*a", "character 0: `\\*` repeats nothing"),
        ("a**", "character 2"),
        ("a{3,2}", "at least 3 and at most 2"),
        ("a{,3}", "write \\{0,"),
        (r"\q", r"`\\q` has no meaning"),
        (r"\u12", "4 hexadecimal digits"),
        (r"\ud800", "no character"),
        ("a\\", "ends here"),
        ("a$b", "anchor \\$ at character 1"),
        ("^*a", "cannot be repeated"),
        (r"\p{Nonsense}", "cannot be compiled"),
        ("(a{1,1000}){1,1000}", "1000000 positions"),
        ("(" * 200 + "a" + ")" * 200, "nested more than 100"),
        ("a" * 20_001, "more than 20000"),
    ],
)
def test_what_no_regular_expression_holds_is_refused_with_its_place(
    compiler: LLGuidanceCompiler, source: str, message: str
) -> None:
    with pytest.raises(GrammarError, match=message):
        compiler.compile(GrammarSpec(kind="regex", source=source))


def test_choices_are_exact_and_one_may_begin_another(compiler: LLGuidanceCompiler) -> None:
    source = json.dumps(["yes", "yes, please", "不", "不是", '"quoted"\n', "<|im_end|>", "a"])
    for text in ["yes", "yes, please", "不", "不是", '"quoted"\n', "<|im_end|>", "a"]:
        assert admits(compiler, "choices", source, text), text
    for text in ["ye", "yes,", "no", "是", "", "aa", "yes "]:
        assert not admits(compiler, "choices", source, text), text


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "not JSON"),
        ("[]", "at least one"),
        ('["a", ""]', "none of them empty"),
        ('["a", 1]', "list of"),
        ('{"a": 1}', "list of"),
        ('["a", "\\ud800"]', "choice 1"),
        (json.dumps(["x"] * 10_001), "10001 choices"),
    ],
)
def test_wrong_choices_are_refused(compiler: LLGuidanceCompiler, source: str, message: str) -> None:
    with pytest.raises(GrammarError, match=message):
        compiler.compile(GrammarSpec(kind="choices", source=source))


def test_lark_with_a_schema_inside(compiler: LLGuidanceCompiler) -> None:
    source = """
    // comment: "%json" and /x/ in it say nothing
    start: "answer: " value ("; " value)*
    value: %json {"type": "array", "items": {"oneOf": [{"type": "integer"}, {"const": "二"}]},
                  "x-guidance": {"whitespace_flexible": true, "lenient": true}}
         | WORD
    WORD: /[a-z]+/ & ~/bad/
    """
    for text in ['answer: [1, "二"]', "answer: good; []"]:
        assert admits(compiler, "lark", source, text), text
    for text in ["answer: [1,2]", "answer: bad", "answer: [ 1]", "answer: [null]"]:
        assert not admits(compiler, "lark", source, text), text


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "cannot be compiled"),
        ("start: nothing", "cannot be compiled"),
        ('start: "a\nb: "c"', "cannot be compiled"),
        ('start: "x"\nb: %json {"not": {}}', "line 2: schema at #/not: keyword `not`"),
        ("start: %json {broken", "line 1: %json must be followed by JSON"),
        ('%llguidance {"no_forcing": true}\nstart: "a"', "line 1: %llguidance is not supported"),
        ("%import common.INT\nstart: INT", "%import is not supported"),
        ('start: <|im_end|> "x"', "is a token"),
        ("start: A\nA: " + " & ".join(f"/.*{i}.*/" for i in range(12)), "terminal A joins more than 8"),
        (
            "start: A\nA: B & B\n" + "\n".join(f"{a}: {b} & {b}" for a, b in zip("BCD", "CDE", strict=True)),
            "joins more",
        ),
        ("start: " + " | ".join(f'"{i}"' for i in range(6_000)), "more than 5000"),
        ("start: " + "(" * 2_000 + '"a"' + ")" * 2_000, "nested"),
    ],
)
def test_a_wrong_or_costly_lark_grammar_is_refused(compiler: LLGuidanceCompiler, source: str, message: str) -> None:
    with pytest.raises(GrammarError, match=message):
        compiler.compile(GrammarSpec(kind="lark", source=source))


@pytest.mark.parametrize(
    ("source", "begin"),
    [
        ("start: start", ""),
        ("?start: start", ""),
        ("start: a\na: b\nb: a", ""),
        ("start: a | b\na: b b\nb: a start", ""),
        ('start: start "再见"', ""),
        ("start: A\nA: /a/ & /b/", ""),
        ("start: /[a&&b]/", ""),
        ('start: "是" a\na: a', "是"),  # the way to nowhere begins later
        ('start: "y" | "是" a\na: a', "是"),
    ],
)
def test_a_grammar_that_leads_nowhere_says_so_in_words_of_ours(
    compiler: LLGuidanceCompiler, source: str, begin: str
) -> None:
    with pytest.raises(GrammarError, match="no text fits it from here on") as refused:
        grammar = compiler.compile(GrammarSpec(kind="lark", source=source))
        for token in embedded_tokenizer().encode(begin):
            assert grammar.accept(token)
        grammar.mask()
    assert "NoExtension" not in str(refused.value)


def test_a_grammar_that_is_forced_for_ever_says_so(compiler: LLGuidanceCompiler) -> None:
    with pytest.raises(GrammarError, match="goes on for ever"):
        grammar = compiler.compile(GrammarSpec(kind="lark", source='start: "xy" start'))
        for token in embedded_tokenizer().encode("xyxyxyxy"):
            grammar.accept(token)
            grammar.forced()
