"""Grammars that begin after the thinking (B48)."""

from __future__ import annotations

import random

import pytest
from grammar_driver import allowed

from embedded_tokenizer import embedded_tokenizer, thinking_tokenizer
from tenuto.ids import TokenId
from tenuto.protocol.grammar import GrammarSpec, ReasoningFrame, TokenGrammar
from tenuto.text.grammar import LLGuidanceCompiler
from tenuto.text.tokenizer import Tokenizer

SCHEMA = '{"type": "object", "properties": {"城市": {"enum": ["北京"]}}, "required": ["城市"]}'
ANSWER = '{"城市": "北京"}'
THOUGHT = 'JSON? {"城市": 5} </thin 也许 <tool_call>'
PROSE = GrammarSpec(kind="regex", source="[a-z<>/ ]*")

MANY = LLGuidanceCompiler(embedded_tokenizer())  # tags of several tokens
ONE = LLGuidanceCompiler(thinking_tokenizer())  # tags that are special tokens
KINDS = pytest.mark.parametrize(
    ("compiler", "tokenizer"), [(MANY, embedded_tokenizer()), (ONE, thinking_tokenizer())], ids=["spelled", "special"]
)


def spec(is_open: bool, inner: GrammarSpec | None = None) -> GrammarSpec:
    inner = inner or GrammarSpec(kind="json_schema", source=SCHEMA)
    frame = ReasoningFrame(open="<think>", close="</think>", is_open=is_open)
    return GrammarSpec(kind=inner.kind, source=inner.source, reasoning=frame)


def takes(grammar: TokenGrammar, ids: list[TokenId]) -> bool:
    """Follow the ids as far as the mask allows them."""
    for token in ids:
        if not allowed(grammar.mask(), token):
            return False
        assert grammar.accept(token)
    return True


def ids(tokenizer: Tokenizer, text: str) -> list[TokenId]:
    return tokenizer.encode_with_control(text)


@KINDS
@pytest.mark.parametrize(
    ("is_open", "text"),
    [
        (True, f"{THOUGHT}\n</think>\n\n{ANSWER}"),
        (True, f"</think>{ANSWER}"),
        (False, f"<think>\n{THOUGHT}\n</think>\n\n{ANSWER}"),
        (False, f"<think></think>{ANSWER}"),
        (False, ANSWER),  # it need not think
    ],
)
def test_it_thinks_freely_and_then_obeys(
    compiler: LLGuidanceCompiler, tokenizer: Tokenizer, is_open: bool, text: str
) -> None:
    grammar = compiler.compile(spec(is_open))
    assert takes(grammar, ids(tokenizer, text)) and grammar.finished
    assert not compiler.compile(spec(is_open)).finished


@KINDS
@pytest.mark.parametrize(
    ("is_open", "text"),
    [
        (True, "想</think>\n\nno JSON"),
        (True, "</think>\n\n\n\n\n"),  # white space has an end (B44)
        (True, '</think>{"城市": "上海"}'),
        (False, "no JSON"),
        (False, "<tool_call>"),
        (False, f"\n\n<think></think>{ANSWER}"),
    ],
)
def test_what_it_refuses(compiler: LLGuidanceCompiler, tokenizer: Tokenizer, is_open: bool, text: str) -> None:
    assert not takes(compiler.compile(spec(is_open)), ids(tokenizer, text))


@KINDS
def test_thinking_does_not_end_the_turn_and_forces_nothing(compiler: LLGuidanceCompiler, tokenizer: Tokenizer) -> None:
    grammar = compiler.compile(spec(True))
    assert takes(grammar, ids(tokenizer, "想")) and grammar.forced() == ()
    for token in (*tokenizer.eos_ids, tokenizer.control["<|im_start|>"]):
        assert not allowed(grammar.mask(), token) and not grammar.accept(token)
    assert takes(grammar, ids(tokenizer, "</think>\n\n"))
    assert grammar.forced() == (), "more white space may come"
    assert takes(grammar, ids(tokenizer, '{"'))
    assert grammar.forced(), "from then on the skeleton is forced as ever"


@KINDS
def test_prose_that_may_think_first(compiler: LLGuidanceCompiler, tokenizer: Tokenizer) -> None:
    """A grammar that would take the tag itself does not keep it from opening."""
    grammar = compiler.compile(spec(False, PROSE))
    assert takes(grammar, ids(tokenizer, "<think>{}"))
    assert takes(grammar, ids(tokenizer, "</think>")) and not allowed(grammar.mask(), ids(tokenizer, "{")[0])
    assert takes(compiler.compile(spec(False, PROSE)), tokenizer.encode("<thi> a <think>")), "not at the beginning"


def test_a_token_that_closes_in_its_middle_is_left_out() -> None:
    """`>` is the tag's last token here; tokens such as `>{` would carry unchecked text across."""
    tokenizer = embedded_tokenizer()
    grammar = MANY.compile(spec(True))
    assert takes(grammar, [t for part in ("a", "</", "think") for t in ids(tokenizer, part)])
    mask = grammar.mask()
    crossing = [t for t in range(tokenizer.vocab_size) if tokenizer.token_bytes(TokenId(t)).startswith(b">")]
    crossing = [t for t in crossing if tokenizer.token_bytes(TokenId(t))[1:].strip()]
    assert crossing and not any(allowed(mask, t) or grammar.fork().accept(TokenId(t)) for t in crossing)
    assert allowed(mask, ids(tokenizer, ">")[0])


@KINDS
@pytest.mark.parametrize("is_open", [True, False])
def test_rollback_and_fork_at_any_place(compiler: LLGuidanceCompiler, tokenizer: Tokenizer, is_open: bool) -> None:
    text = f"想 <{'/thin' if is_open else ''}\n</think>\n\n{ANSWER}"
    text = text if is_open else "<think>" + text
    whole = ids(tokenizer, text)
    masks = []
    grammar = compiler.compile(spec(is_open))
    for token in whole:
        masks.append(grammar.mask())
        assert grammar.accept(token)
    rng = random.Random(5)
    for _ in range(30):
        back = rng.randrange(len(whole) + 1)
        copy = grammar.fork()
        copy.rollback(back)
        at = len(whole) - back
        assert at == len(whole) or (copy.mask() == masks[at]).all()
        assert takes(copy, whole[at:]) and copy.finished
    assert grammar.finished


def test_every_token_is_accepted_where_the_mask_says_so() -> None:
    tokenizer = thinking_tokenizer()
    rng = random.Random(1)
    for text in ("", "<think>", "<think>a", "<think>a</think>", "<think></think>\n\n", '{"'):
        grammar = ONE.compile(spec(False))
        assert takes(grammar, ids(tokenizer, text))
        mask, is_thinking = grammar.mask(), text.startswith("<think>") and "</" not in text
        for token in [*range(40), *rng.sample(range(tokenizer.vocab_size), 60)]:
            if token not in tokenizer.eos_ids:
                accepts = grammar.fork().accept(TokenId(token))
                assert accepts or not allowed(mask, token), tokenizer.text_of(TokenId(token))
                # Where the inner grammar forces a spelling, its mask has no other, though it would accept one.
                assert not is_thinking or accepts == allowed(mask, token), tokenizer.text_of(TokenId(token))


def test_the_tags_are_no_tokens_of_the_text() -> None:
    """In an answer, what looks like a tag is spelled out."""
    tokenizer = thinking_tokenizer()
    grammar = ONE.compile(GrammarSpec(kind="regex", source='"[^"]*"'))
    assert takes(grammar, tokenizer.encode('"'))
    assert not allowed(grammar.mask(), tokenizer.control["</think>"])
    assert takes(grammar, tokenizer.encode("</think>"))
