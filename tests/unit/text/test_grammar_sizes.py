"""Grammars that are long rather than deep: the library takes square time and memory for them, and in the end a process.

What is let through is small enough that each of its calls, some of which the event loop makes, is short.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from embedded_tokenizer import embedded_tokenizer
from tenuto.errors import GrammarError
from tenuto.protocol.grammar import GrammarSpec
from tenuto.protocol.messages import ToolSpec
from tenuto.text.grammar import LLGuidanceCompiler
from tenuto.text.tool_format import HermesFormat

# Each makes a schema of so many parts.
LONG: dict[str, Callable[[int], Any]] = {
    "constant object": lambda n: {"const": {f"键{i}": i for i in range(n)}},
    "constant list": lambda n: {"const": [1] * n},
    "constant of lists": lambda n: {"const": [[]] * n},
    "constant deep inside": lambda n: {"items": {"anyOf": [{"const": [{"a": [None] * n}]}, {"type": "null"}]}},
    "enum of objects": lambda n: {"enum": [{"k": i} for i in range(n)]},
    "enum of empty lists": lambda n: {"enum": [[]] * n},
    "enum of one long list": lambda n: {"enum": [1, [True] * n]},
    "required names": lambda n: {"type": "object", "required": [f"p{i}" for i in range(n)]},
    "required beside others": lambda n: {"properties": {"x": {}}, "required": [f"p{i}" for i in range(n)]},
    "required properties": lambda n: {
        "type": "object",
        "properties": {f"p{i}": {"const": i} for i in range(n)},
        "required": [f"p{i}" for i in range(n)],
    },
    "names of a map": lambda n: {"type": "object", "propertyNames": {"enum": [f"p{i}" for i in range(n)]}},
    "tuple": lambda n: {"type": "array", "prefixItems": [{"const": i} for i in range(n)], "minItems": n},
    "in all": lambda n: {"properties": {f"p{i}": {"const": [0] * (n // 20)} for i in range(25)}},
}
LONG_TEXTS: dict[str, Callable[[int], Any]] = {
    "constant": lambda n: {"const": "咪" * n},
    "enum": lambda n: {"enum": ["a", "b" * n]},
    "name": lambda n: {"properties": {"n" * n: {"type": "null"}}},
    "required name": lambda n: {"type": "object", "required": ["n" * n]},
    "in a constant": lambda n: {"const": [{"k" * (n // 2): "v" * (n // 2)}]},
    "in all": lambda n: {"properties": {f"p{i}": {"const": "x" * (n // 20)} for i in range(25)}},
}


@pytest.fixture(scope="module")
def compiler() -> LLGuidanceCompiler:
    return LLGuidanceCompiler(embedded_tokenizer())


def json_schema(schema: Any) -> GrammarSpec:
    return GrammarSpec(kind="json_schema", source=json.dumps(schema))


@pytest.mark.parametrize("kind", LONG)
def test_schemas_of_very_many_parts_are_refused(compiler: LLGuidanceCompiler, kind: str) -> None:
    for num_parts in (2_100, 50_000):
        with pytest.raises(GrammarError, match="more than 2000"):
            compiler.compile(json_schema(LONG[kind](num_parts)))
        tool = ToolSpec(name="f", description="", parameters={"properties": {"a": LONG[kind](num_parts)}})
        spec = HermesFormat().grammar([tool], "required", False, [])
        assert [relaxed.path for relaxed in spec.relaxed] == ["f: #"], "a tool that is not strict takes any object then"


@pytest.mark.parametrize("kind", LONG_TEXTS)
def test_schemas_of_very_long_texts_are_refused(compiler: LLGuidanceCompiler, kind: str) -> None:
    with pytest.raises(GrammarError, match="100000 characters"):
        compiler.compile(json_schema(LONG_TEXTS[kind](101_000)))


@pytest.mark.parametrize("schema", [LONG["constant object"](1_900), LONG_TEXTS["constant"](9_000)])
def test_what_is_let_through_is_followed_to_the_end(compiler: LLGuidanceCompiler, schema: Any) -> None:
    grammar = compiler.compile(json_schema(schema))
    ids = grammar.forced()
    assert all(grammar.accept(token) for token in ids) and grammar.finished
    assert json.loads(embedded_tokenizer().decode(ids)) == schema["const"]


def test_enums_of_many_plain_values_are_no_sequences(compiler: LLGuidanceCompiler) -> None:
    compiler.compile(json_schema({"enum": [f"值{i}" for i in range(20_000)]}))
    compiler.compile(json_schema({"enum": list(range(20_000))}))


@pytest.mark.parametrize(
    "spec",
    [
        GrammarSpec(kind="choices", source=json.dumps(["a", "b" * 100_001])),
        GrammarSpec(kind="lark", source="start: " + '"a" ' * 20_001),
        GrammarSpec(kind="lark", source="start: " + '"a"?' * 20_001),
        GrammarSpec(kind="lark", source="start: A\nA: " + "/a/" * 20_001),
        GrammarSpec(kind="lark", source="start: " + "(" * 20_001 + '"a"' + ")" * 20_001),
    ],
)
def test_other_long_grammars_are_refused(compiler: LLGuidanceCompiler, spec: GrammarSpec) -> None:
    with pytest.raises(GrammarError, match="more than"):
        compiler.compile(spec)
