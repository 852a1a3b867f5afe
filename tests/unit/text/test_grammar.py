from __future__ import annotations

import json
from dataclasses import replace

import pytest
from grammar_driver import allowed, drive

from embedded_tokenizer import embedded_files, embedded_tokenizer
from tenuto.errors import GrammarError
from tenuto.ids import TokenId
from tenuto.protocol.grammar import GrammarSpec
from tenuto.text.grammar import LLGuidanceCompiler
from tenuto.text.tokenizer import Tokenizer

DIGITS = GrammarSpec(kind="lark", source='start: "n=" /[0-9]{1,3}/ ";"')


@pytest.fixture(scope="module")
def compiler() -> LLGuidanceCompiler:
    return LLGuidanceCompiler(embedded_tokenizer())


def ids(text: str) -> list[TokenId]:
    return embedded_tokenizer().encode(text)


def test_mask_says_what_may_come_and_has_a_bit_for_every_id(compiler: LLGuidanceCompiler) -> None:
    grammar = compiler.compile(DIGITS)
    assert grammar.mask().shape == (49152 // 32,)
    for token in grammar.forced():
        assert grammar.accept(token)
    mask = grammar.mask()
    assert allowed(mask, ids("7")[0]) and not allowed(mask, ids("x")[0]) and not allowed(mask, 2)


def test_a_refused_token_changes_nothing(compiler: LLGuidanceCompiler) -> None:
    grammar = compiler.compile(DIGITS)
    before = grammar.mask()
    assert not grammar.accept(ids("x")[0]) and not grammar.accept(TokenId(2))
    assert (grammar.mask() == before).all() and grammar.accept(ids("n")[0])


def test_rollback_and_fork_are_independent(compiler: LLGuidanceCompiler) -> None:
    grammar = compiler.compile(DIGITS)
    for token in ids("n=1"):
        assert grammar.accept(token)
    before = grammar.mask()
    other = grammar.fork()
    for token in ids(";"):
        assert other.accept(token)
    assert other.finished and not grammar.finished and (grammar.mask() == before).all()
    assert grammar.accept(ids("2")[0])
    grammar.rollback(1)
    assert (grammar.mask() == before).all()
    other.rollback(1)
    assert not other.finished and (other.mask() == before).all()


def test_at_the_end_only_the_end_may_come(compiler: LLGuidanceCompiler) -> None:
    grammar = compiler.compile(DIGITS)
    for token in ids("n=12;"):
        assert grammar.accept(token)
    mask = grammar.mask()
    assert grammar.finished and [i for i in range(49152) if allowed(mask, i)] == [2]
    assert grammar.forced() == ()


def test_every_end_id_may_end_and_one_that_was_taken_can_be_undone() -> None:
    files = replace(embedded_files(), eos_ids=(0, 2))
    compiler = LLGuidanceCompiler(Tokenizer.from_files(files, vocab_size=49155))
    grammar = compiler.compile(GrammarSpec(kind="regex", source="a+"))
    assert grammar.accept(ids("a")[0])
    mask = grammar.mask()
    assert len(mask) == 1537 and allowed(mask, 0) and allowed(mask, 2) and not allowed(mask, 49153)
    assert grammar.accept(TokenId(0)) and grammar.finished
    grammar.rollback(1)
    assert not grammar.finished and (grammar.mask() == mask).all()


def test_json_schema_is_compact_whatever_it_asks_for(compiler: LLGuidanceCompiler) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    spec = GrammarSpec(kind="json_schema", source=json.dumps({**schema, "x-guidance": {"whitespace_flexible": True}}))
    assert drive(compiler, spec, '{"a": "你好"}')
    for text in ('{"a":"x"}', '{\n"a": "x"}', '{"a":  "x"}', '{"a": "x"}\n'):
        assert drive(compiler, spec, text) is None


def test_two_matchers_of_one_grammar_do_not_share_state(compiler: LLGuidanceCompiler) -> None:
    first, second = compiler.compile(DIGITS), compiler.compile(DIGITS)
    before = second.mask()
    assert first.accept(ids("n")[0])
    assert (second.mask() == before).all() and not (first.mask() == before).all()
    assert (compiler.compile(DIGITS).mask() == before).all()
    for number in range(40):  # more than are kept
        assert compiler.compile(GrammarSpec(kind="regex", source=f"x{number}")).accept(ids("x")[0])
    assert (compiler.compile(DIGITS).mask() == before).all() and (second.mask() == before).all()


@pytest.mark.parametrize(
    "spec",
    [
        GrammarSpec(kind="lark", source="start: undefined_rule"),
        GrammarSpec(kind="lark", source=""),
        GrammarSpec(kind="regex", source="(unclosed"),
        GrammarSpec(kind="json_schema", source=""),
        GrammarSpec(kind="json_schema", source="false"),
        GrammarSpec(kind="json_schema", source='{"type": "nonsense"}'),
        GrammarSpec(kind="json_schema", source='{"properties": {"a": "b"}}'),
        GrammarSpec(kind="json_schema", source='{"items":' * 500 + "{}" + "}" * 500),
        GrammarSpec(kind="json_schema", source='{"items":' * 50_000 + "{}" + "}" * 50_000),
        GrammarSpec(kind="lark", source="start: " + " | ".join(f'"{i}x"' for i in range(100_000))),
        GrammarSpec(kind="regex", source="x" * 2_000_001),
    ],
    ids=lambda spec: f"{spec.kind}:{spec.source[:30]}",
)
def test_what_cannot_be_compiled_is_refused(compiler: LLGuidanceCompiler, spec: GrammarSpec) -> None:
    with pytest.raises(GrammarError):
        compiler.compile(spec).mask()


def test_control_strings_that_a_grammar_forces_are_text(compiler: LLGuidanceCompiler) -> None:
    grammar = compiler.compile(GrammarSpec(kind="lark", source='start: "a<|im_end|>b"'))
    forced = grammar.forced()
    assert embedded_tokenizer().decode(forced) == "a<|im_end|>b" and 2 not in forced
