"""A Lark grammar of the caller's, looked over before the library sees it.

Schemas after `%json` are held to the same table as all others. What the library would take without limit (conditions
joined by `&`, which take exponential time) or what changes how it works is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from tenuto.errors import GrammarError
from tenuto.text.json_schema import normalise
from tenuto.text.tool_grammar import inline_schema

MAX_RULES = 5_000  # lines and alternatives: compiling takes more than linear time, and no interrupt
MAX_PIECES = 20_000  # strings, names and signs; the library takes square time and stack for those of one rule
MAX_CONJUNCTIONS = 8  # `&` in one terminal, those of the terminals it uses included

_PIECE = re.compile(
    r'"(?:\\.|[^"\\\n])*"i?|/(?![/*])(?:\\.|[^/\\\n])+/[imslux]*|//[^\n]*|#[^\n]*|%[a-z_]+|<[^>\s]*>|[A-Za-z_][\w-]*|\s+|.',
    re.DOTALL,
)
_DIRECTIVES = frozenset({"%json", "%regex", "%ignore", "%declare"})
_NAME = re.compile(r"[A-Za-z_][\w-]*")


def checked_lark(source: str) -> str:
    """The same grammar, its schemas in normal form. Raises GrammarError, with the line."""
    num_rules = source.count("\n") + source.count(" | ")
    if num_rules > MAX_RULES:
        raise GrammarError(f"the grammar has {num_rules} rules and alternatives, more than {MAX_RULES}")
    pieces: list[str] = []
    terminals = _Terminals()
    num_pieces = 0
    for piece, line in _pieces(source):
        num_pieces += not piece.isspace()
        if num_pieces > MAX_PIECES:
            raise GrammarError(f"the grammar, line {line}: it has more than {MAX_PIECES} strings, names and signs")
        name, _, schema = piece.partition(" ")
        if name.startswith("%") and name not in _DIRECTIVES:
            raise GrammarError(f"the grammar, line {line}: {name} is not supported")
        if piece.startswith("<") and len(piece) > 1:
            raise GrammarError(f"the grammar, line {line}: {piece[:50]} is a token; a grammar is of text, in quotes")
        terminals.see(piece)
        pieces.append(_schema(schema, line) if name == "%json" else piece)
    terminals.check()
    return "".join(pieces)


def _pieces(source: str) -> Iterator[tuple[str, int]]:
    """Each piece with its line; a directive that takes JSON comes with it."""
    at = line = 0
    line = 1
    while at < len(source):
        found = _PIECE.match(source, at)
        assert found is not None, "the last alternative matches any character"
        text, at = found[0], found.end()
        start = line
        if text in ("%json", "%regex"):
            begin = at + len(source[at:]) - len(source[at:].lstrip())
            try:
                _, end = json.JSONDecoder().raw_decode(source, begin)
            except (ValueError, RecursionError) as error:
                raise GrammarError(f"the grammar, line {line}: {text} must be followed by JSON: {error}") from error
            text, at = f"{text} {source[begin:end]}", end
            line += source[found.end() : end].count("\n")
        else:
            line += text.count("\n")
        yield text, start


def _schema(source: str, line: int) -> str:
    """Of tools' grammars, whose schemas are in normal form already, this changes nothing but the spelling."""
    try:
        return inline_schema(normalise(json.loads(source)).schema)
    except GrammarError as error:
        raise GrammarError(f"the grammar, line {line}: {error}") from error


class _Terminals:
    """Counts how many conditions each terminal joins."""

    def __init__(self) -> None:
        self._own: dict[str, int] = {"": 0}
        self._uses: dict[str, list[str]] = {"": []}
        self._name = self._last = ""

    def see(self, piece: str) -> None:
        if piece == ":" and _NAME.fullmatch(self._last):
            self._name = self._last
            self._own.setdefault(self._name, 0)
            self._uses.setdefault(self._name, [])
        elif piece == "&":
            self._own[self._name] += 1
        elif _NAME.fullmatch(piece) and piece.isupper():
            self._uses[self._name].append(piece)
        if not piece.isspace():
            self._last = piece

    def check(self) -> None:
        known: dict[str, int] = {}
        for name in self._own:
            if name.isupper() and self._count(name, known, 0) > MAX_CONJUNCTIONS:
                raise GrammarError(
                    f"its terminal {name} joins more than {MAX_CONJUNCTIONS} conditions by &: make it simpler"
                )

    def _count(self, name: str, known: dict[str, int], depth: int) -> int:
        if depth > 100:
            raise GrammarError(f"the grammar's terminal {name} is nested more than 100 deep, or contains itself")
        if name not in known:
            used = sum(self._count(other, known, depth + 1) for other in self._uses.get(name, ()) if other != name)
            known[name] = min(self._own.get(name, 0) + used, 10**6)
        return known[name]
