"""A regular expression as a tree, and how it is written for llguidance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tenuto.errors import GrammarError

_MAX_CODE = 0x10FFFF

Ranges: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Chars:
    """One character of a set. `properties`: names of Unicode properties, as in `L` or `^Lu` (not of it)."""

    ranges: Ranges
    properties: tuple[str, ...] = ()
    negated: bool = False


@dataclass(frozen=True)
class Edge:
    """`^` or `$`: the very beginning or end of the text."""

    sign: str
    position: int


@dataclass(frozen=True)
class Sequence:
    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Either:
    options: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    item: Node
    least: int
    most: int | None


Node: TypeAlias = Chars | Edge | Sequence | Either | Repeat


def complement(ranges: Ranges) -> Ranges:
    """Every other character; surrogates are none."""
    taken = sorted([*ranges, (0xD800, 0xDFFF)])
    found: list[tuple[int, int]] = []
    start = 0
    for low, high in taken:
        if low > start:
            found.append((start, low - 1))
        start = max(start, high + 1)
    if start <= _MAX_CODE:
        found.append((start, _MAX_CODE))
    return tuple(found)


ANY_CHARACTER = Chars(complement(()))
ANYTHING = Repeat(ANY_CHARACTER, 0, None)


def write(node: Node) -> str:
    """In the syntax of Rust's regex crate: sets spelled out, everything but letters and digits by its number.

    What is written, read again and written again is the same text.
    """
    match node:
        case Chars() if node == ANY_CHARACTER:
            return "(?s:.)"
        case Chars(ranges, properties, negated):
            inside = "".join(_char(low) if low == high else f"{_char(low)}-{_char(high)}" for low, high in ranges)
            inside += "".join(f"\\P{{{p[1:]}}}" if p.startswith("^") else f"\\p{{{p}}}" for p in properties)
            is_one = len(ranges) == 1 and ranges[0][0] == ranges[0][1] and not properties and not negated
            return inside if is_one else f"[{'^' if negated else ''}{inside}]"
        case Sequence(parts):
            return "".join(f"(?:{write(p)})" if isinstance(p, Either) else write(p) for p in parts)
        case Either(options):
            return "|".join(write(option) for option in options)
        case Repeat(item, least, most):
            written = write(item) if isinstance(item, Chars) else f"(?:{write(item)})"
            return f"{written}{{{least},{'' if most is None else most}}}"
        case Edge():
            raise AssertionError("anchors are taken off before")


def positions(node: Node) -> int:
    """How many sets of characters it has, repetitions written out: what matching it may cost."""
    match node:
        case Chars() | Edge():
            return 1
        case Sequence(nodes) | Either(nodes):
            return 1 + sum(map(positions, nodes))
        case Repeat(item, least, most):
            return positions(item) * max(1, least, most or 0)


def _char(code: int) -> str:
    return chr(code) if chr(code).isascii() and chr(code).isalnum() else f"\\x{{{code:x}}}"


def anchored(node: Node, around: Node | None) -> Node:
    """Its anchors taken off; `around` is what may stand on a side that is not anchored."""
    framed = _frame(node, around, around)
    return framed[0] if len(framed) == 1 else Either(tuple(framed))


def _frame(node: Node, before: Node | None, after: Node | None) -> list[Node]:
    """Takes `^` and `$` off the ends of every option: only there can a grammar hold them."""
    if isinstance(node, Either):
        return [framed for option in node.options for framed in _frame(option, before, after)]
    parts = list(node.parts) if isinstance(node, Sequence) else [node]
    while parts and isinstance(parts[0], Edge) and parts[0].sign == "^":
        parts.pop(0)
        before = None
    while parts and isinstance(parts[-1], Edge) and parts[-1].sign == "$":
        parts.pop()
        after = None
    if len(parts) == 1 and isinstance(parts[0], Either | Sequence):
        return _frame(parts[0], before, after)
    body = Sequence(tuple(parts))
    if (edge := _edge_in(body)) is not None:
        raise GrammarError(
            f"the regular expression has the anchor {edge.sign} at character {edge.position}, inside it; anchors are "
            "supported at its ends, and at the ends of its alternatives"
        )
    return [Sequence(tuple(part for part in (before, *parts, after) if part is not None))]


def _edge_in(node: Node) -> Edge | None:
    match node:
        case Edge():
            return node
        case Sequence(nodes) | Either(nodes):
            return next((edge for n in nodes if (edge := _edge_in(n)) is not None), None)
        case Repeat(item):
            return _edge_in(item)
        case Chars():
            return None
