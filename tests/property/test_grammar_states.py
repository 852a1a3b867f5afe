"""Grammar states fork and go back: a random walk with detours is the same as a fresh replay."""

from __future__ import annotations

import json
import random

import pytest

from embedded_tokenizer import embedded_tokenizer
from grammar_walk import allowed_ids
from random_schemas import random_schema
from tenuto.errors import GrammarError
from tenuto.ids import TokenId
from tenuto.protocol.grammar import GrammarSpec, TokenGrammar
from tenuto.text.grammar import LLGuidanceCompiler

OTHERS = [
    GrammarSpec(kind="regex", source=r"(ab|a)*c{2,}\d?"),
    GrammarSpec(kind="choices", source=json.dumps(["yes", "yes, please", "不", "不是"])),
    GrammarSpec(kind="lark", source='start: e\ne: e "+" e | "(" e ")" | /[0-9]+/'),
]


@pytest.fixture(scope="module")
def compiler() -> LLGuidanceCompiler:
    return LLGuidanceCompiler(embedded_tokenizer())


def same(one: TokenGrammar, other: TokenGrammar) -> None:
    assert one.finished == other.finished and (one.mask() == other.mask()).all() and one.forced() == other.forced()


def wander(grammar: TokenGrammar, taken: list[TokenId], num_tokens: int, rng: random.Random) -> None:
    for _ in range(num_tokens):
        if grammar.finished:
            return
        token = TokenId(int(rng.choice(allowed_ids(grammar.mask()))))
        assert grammar.accept(token)
        taken.append(token)


def replay(compiler: LLGuidanceCompiler, spec: GrammarSpec, taken: list[TokenId]) -> TokenGrammar:
    fresh = compiler.compile(spec)
    assert all(fresh.accept(token) for token in taken)
    return fresh


@pytest.mark.parametrize("seed", range(25))
def test_detours_leave_no_trace(compiler: LLGuidanceCompiler, seed: int) -> None:
    rng = random.Random(seed)
    schema = GrammarSpec(kind="json_schema", source=json.dumps(random_schema(rng)))
    spec = OTHERS[seed] if seed < len(OTHERS) else schema
    try:
        grammar: TokenGrammar = compiler.compile(spec)
    except GrammarError:
        return
    taken: list[TokenId] = []
    for _ in range(8):
        wander(grammar, taken, rng.randrange(1, 6), rng)
        fork, branch = grammar.fork(), list(taken)
        wander(fork, branch, rng.randrange(1, 6), rng)
        num_back = rng.randrange(len(taken) + 1) if rng.random() < 0.5 else 0
        grammar.rollback(num_back)
        del taken[len(taken) - num_back :]
        same(fork, replay(compiler, spec, branch))
        same(grammar, replay(compiler, spec, taken))
        if rng.random() < 0.3:
            grammar, taken = fork, branch
