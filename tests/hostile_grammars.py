"""Hostile and malformed grammars from one seed; run as a program, it feeds them to a compiler under limits.

`python hostile_grammars.py FIRST COUNT` compiles that many, takes a few steps under each, and prints a summary. It ends
with a signal if one takes longer than the deadline, or the memory passes the bound.
"""

from __future__ import annotations

import json
import random
import resource
import signal
import sys
from collections import Counter
from typing import Any

from random_schemas import PATTERNS, random_schema
from tenuto.protocol.grammar import GrammarSpec

DEADLINE_S = 20  # of one grammar, on a busy machine
MAX_GROWTH_MB = 700
_ODD: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1e400,
    10**40,
    "",
    "x",
    "#",
    "#/",
    [],
    {},
    [[]],
    {"$ref": "#"},
    "\ud800",
    2**31,
]
_ALPHABET = [*"abc019.*+?|()[]{}^$\\,-:=!<>/&~%\"' \n", "\\d", "\\w", "(?:", "(?=", "[^", "{2,3}", "{0,900}", "é", "北"]


def hostile(seed: int) -> GrammarSpec:
    rng = random.Random(seed)
    makers = [_mutated_schema, _mutated_schema, _cut_text, _bomb, _regex, _regex, _lark, _choices]
    return rng.choice(makers)(rng)


def _schema(schema: Any) -> GrammarSpec:
    return GrammarSpec(kind="json_schema", source=json.dumps(schema))


def _mutated_schema(rng: random.Random) -> GrammarSpec:
    schema: Any = random_schema(rng)
    for _ in range(rng.randrange(1, 5)):
        schema = _mutated(rng, schema)
    return _schema(schema)


def _mutated(rng: random.Random, node: Any) -> Any:
    if isinstance(node, dict) and node and rng.random() < 0.8:
        key = rng.choice(list(node))
        return {**node, key: _mutated(rng, node[key])}
    if isinstance(node, list) and node and rng.random() < 0.8:
        index = rng.randrange(len(node))
        return [*node[:index], _mutated(rng, node[index]), *node[index + 1 :]]
    kind = rng.randrange(4)
    if kind == 0 and isinstance(node, dict):
        words = [
            "not",
            "allOf",
            "anyOf",
            "if",
            "$ref",
            "items",
            "pattern",
            "minItems",
            "maxLength",
            "enum",
            "properties",
        ]
        return {**node, rng.choice(words): rng.choice([node, [node, node], *_ODD])}
    return random_schema(rng) if kind == 1 else rng.choice(_ODD)


def _cut_text(rng: random.Random) -> GrammarSpec:
    text = json.dumps(random_schema(rng))
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice(['"', "{", "}", "[", ",", ":", "\\", "1e999", "NaN", "", "\x00"]) + text[at + 1 :]
    return GrammarSpec(kind="json_schema", source=text)


def _bomb(rng: random.Random) -> GrammarSpec:
    size = int(10 ** rng.uniform(1, 3.5))
    text = {"type": "string"}
    names = [f"n{i}" for i in range(size)]
    chain = {f"d{i}": {"items": {"$ref": f"#/$defs/d{i + 1}"}} for i in range(size)}
    words = [f"w{i}x" for i in range(min(size, 40))]
    nest: Any = {}
    for _ in range(min(size, 300)):
        nest = {rng.choice(["items", "not", "additionalProperties"]): nest}
    bombs: list[Any] = [
        {"type": "string", rng.choice(["minLength", "maxLength"]): 10 ** rng.randrange(3, 12), "pattern": "^[a-z ]+$"},
        {"type": "array", rng.choice(["minItems", "maxItems"]): 10 ** rng.randrange(3, 12), "items": text},
        {"enum": names},
        {"enum": [{name: names[:3]} for name in names]},
        {"type": "object", "properties": dict.fromkeys(names, text), "required": names[: rng.choice([0, size])]},
        {"$ref": "#/$defs/d0", "$defs": {**chain, f"d{size}": text}},
        {"$ref": "#/$defs/d0", "$defs": {**chain, f"d{size}": {"$ref": "#/$defs/d0"}}},
        {"allOf": [{"pattern": word} for word in words], "type": "string"},
        {"allOf": [{"anyOf": [{"const": f"{word}{i}"} for i in range(3)]} for word in words]},
        {"anyOf": [{"type": "object", "properties": {name: text}} for name in names]},
        {"oneOf": [{"type": "object", "properties": {"t": {"const": n}}, "required": ["t"]} for n in names]},
        {"type": "integer", "multipleOf": rng.randrange(1, 10**6), "minimum": -(2**53), "maximum": 2**53},
        {"type": "object", "patternProperties": {f"^{name}": text for name in names[:60]}},
        nest,
    ]
    if rng.random() < 0.1:
        return GrammarSpec(kind="json_schema", source='{"items":' * size + "{}" + "}" * size)
    return _schema(rng.choice(bombs))


def _regex(rng: random.Random) -> GrammarSpec:
    if rng.random() < 0.4:
        source = "".join(rng.choice(_ALPHABET) for _ in range(rng.randrange(1, 40)))
    else:
        source = _nested(rng, 4)
    if rng.random() < 0.5:
        return GrammarSpec(kind="regex", source=source)
    limits = rng.choice(
        [{}, {"minLength": 50}, {"maxLength": 10**6}, {"allOf": [{"pattern": p} for p, _ in PATTERNS[:3]]}]
    )
    return _schema({"type": "string", "pattern": source, **limits})


def _nested(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(["a", "ab", "[a-c]", ".", ".*", "\\w+", "[^x]", "北", "a?"])
    inside = _nested(rng, depth - 1)
    kind = rng.randrange(4)
    if kind == 0:
        return f"({inside}|{_nested(rng, depth - 1)})"
    if kind == 1:
        return inside + _nested(rng, depth - 1)
    return f"({inside})" + rng.choice(["*", "+", "?", "{1,1000}", "{30}", "{2,}", "{0,50}", "*?"])


def _lark(rng: random.Random) -> GrammarSpec:
    size = rng.choice([2, 10, 60, 1000])
    rules = [
        "start: "
        + " ".join(f"r{i}" for i in range(size))
        + "\n"
        + "\n".join(f'r{i}: "a" r{i} | ' for i in range(size)),
        "start: r0\n" + "\n".join(f"r{i}: r{i + 1} r{i + 1}" for i in range(size)) + f'\nr{size}: "a"',
        "start: A0\n" + "\n".join(f"A{i}: A{i + 1} A{i + 1}" for i in range(size)) + f'\nA{size}: "a"',
        "start: A\nA: " + " & ".join(f"/(?s:.*)w{i}x(?s:.*)/" for i in range(min(size, 30))),
        'start: e\ne: e e | "a" | ',
        f'start: e{{{size}}}\ne: f{{0,{size}}}\nf: "a" | "b"',
        'start: "x" %json {"type": "object", "properties": {"a": {"not": {}}}}',
        'start: "x" %json {"type": "array", "items": {"enum": [1, "二"]}} "y"',
        "start: " + "(" * size + '"a"' + ")" * size,
        f"start: /{_nested(rng, 4)}/ /{_nested(rng, 3)}/",
        "start: a\na: b\nb: a",
        'start: %regex {"substring_chars": "' + "ab" * size + '"}',
        'start: <|im_end|> "x"',
    ]
    source = rng.choice(rules)
    if rng.random() < 0.4:
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(source) + 1)
            source = source[:at] + rng.choice(_ALPHABET) + source[at + rng.randrange(2) :]
    return GrammarSpec(kind="lark", source=source)


def _choices(rng: random.Random) -> GrammarSpec:
    listed = [rng.choice(_ALPHABET) * rng.randrange(1, 50) for _ in range(rng.choice([0, 1, 5, 500, 20_000]))]
    return GrammarSpec(kind="choices", source=json.dumps(rng.choice([listed, listed, {"a": 1}, [1], "x", [""]])))


def run(first: int, count: int) -> Counter[str]:
    """Outcomes. Anything but a GrammarError goes through."""
    from embedded_tokenizer import embedded_tokenizer
    from grammar_walk import random_walk
    from tenuto.errors import GrammarError
    from tenuto.text.grammar import LLGuidanceCompiler

    compiler = LLGuidanceCompiler(embedded_tokenizer())
    outcomes: Counter[str] = Counter()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for seed in range(first, first + count):
        spec = hostile(seed)
        signal.alarm(DEADLINE_S)  # unhandled, it ends the process: a hang is not an exception
        try:
            grammar = compiler.compile(spec)
            outcomes["compiled"] += 1
            random_walk(grammar, random.Random(seed), 12)
        except GrammarError as error:
            assert 10 < len(str(error)) < 3_000, (seed, str(error))
            outcomes["refused"] += 1
        except BaseException:
            print("seed", seed, file=sys.stderr)
            raise
        grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
        assert grown_mb < MAX_GROWTH_MB, f"seed {seed}: {grown_mb} MB"
    signal.alarm(0)
    outcomes["grown_mb"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    return outcomes


if __name__ == "__main__":
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_AS, (6 << 30, hard))  # should the bound be passed at once
    print(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]))))
