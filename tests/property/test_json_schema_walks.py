"""What random walks write under random schemas, judged by an independent validator; and the other way round."""

from __future__ import annotations

import decimal
import json
import random
from collections import Counter
from typing import Any

import jsonschema
import pytest

from embedded_tokenizer import embedded_tokenizer
from grammar_walk import allows, random_walk
from random_schemas import random_schema, random_value
from tenuto.errors import GrammarError
from tenuto.protocol.grammar import GrammarSpec, TokenGrammar
from tenuto.text.grammar import LLGuidanceCompiler


def _decimals(text: str) -> Any:
    """Exact numbers, so that neither the grammar nor the validator is excused by rounding."""
    return json.loads(text, parse_float=decimal.Decimal)


class Judge:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._compiler = LLGuidanceCompiler(embedded_tokenizer())

    def compile(self, source: str) -> TokenGrammar:
        return self._compiler.compile(GrammarSpec(kind="json_schema", source=source))

    def judge(self, seed: int) -> None:
        rng = random.Random(seed)
        schema = random_schema(rng)
        source = json.dumps(schema, ensure_ascii=False)
        checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
        validator = jsonschema.Draft202012Validator(_decimals(source), format_checker=checker)
        try:
            self.compile(source)
        except GrammarError as error:
            assert str(error)
            self.counts["refused"] += 1
            return
        self._walk(seed, source, validator, rng)
        for _ in range(2):
            self._accepts(seed, source, validator, json.dumps(random_value(schema, schema, rng), ensure_ascii=False))

    def _walk(self, seed: int, source: str, validator: Any, rng: random.Random) -> None:
        ids = random_walk(self.compile(source), rng, 400)
        if ids is None:
            self.counts["unfinished"] += 1
            return
        text = embedded_tokenizer().decode(ids)
        fault = next(validator.iter_errors(_decimals(text)), None)
        assert fault is None, f"seed {seed}: {text} is not valid: {fault.message}\n{source}"
        self.counts["valid"] += 1

    def _accepts(self, seed: int, source: str, validator: Any, text: str) -> None:
        if not validator.is_valid(_decimals(text)):
            return
        grammar, tokenizer = self.compile(source), embedded_tokenizer()
        refused = next((token for token in tokenizer.encode(text) if not grammar.accept(token)), None)
        ended = refused is None and (grammar.finished or all(allows(grammar.mask(), e) for e in tokenizer.eos_ids))
        assert ended, f"seed {seed}: {text} is valid, but not admitted\n{source}"
        self.counts["admitted"] += 1


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge()


def _run(judge: Judge, num_valid: int) -> None:
    seed = 0
    with decimal.localcontext(prec=3_000):
        while judge.counts["valid"] < num_valid:
            judge.judge(seed)
            seed += 1
    assert judge.counts["refused"] < 0.2 * seed and judge.counts["unfinished"] < 0.2 * seed
    assert judge.counts["admitted"] > num_valid, "values are admitted, not only refused"


def test_an_independent_validator_accepts_what_is_written(judge: Judge) -> None:
    _run(judge, 150)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_an_independent_validator_accepts_five_thousand(judge: Judge) -> None:
    _run(judge, 5_000)
