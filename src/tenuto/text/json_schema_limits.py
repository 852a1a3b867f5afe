"""What a schema may cost to compile. Compiling cannot be interrupted, so it is estimated before, from above.

Measured with llguidance 1.9.1: joining n conditions on one string takes about 2^n steps (26: five minutes and 17 GB;
8: nothing), joining unions multiplies their options, and following a chain of definitions takes stack, of which a
thread's 8 MB end after some 3,000 levels. A sequence of some 30,000 parts (members of a constant, names that are
required) ends the process, one of 15,000 takes a GB; and text that is fixed is read through again at each step that
meets it. All else is bounded by the library's own limits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenuto.errors import GrammarError

MAX_DEPTH = 100
MAX_NODES = 2_000  # schemas, members of constants that are no schemas, and names that only `required` knows
MAX_FIXED_CHARS = 100_000  # of names and constants, of an enum its longest value
MAX_LEVELS = 1_000  # of definitions: the sum of their depths, since each may lead to the next
MAX_ALTERNATIVES = 1_000  # of conditions that are joined, multiplied
MAX_CONDITIONS = 8  # patterns and lengths of one string
_PREFIX = "#/$defs/"
_LENGTHS = ("minLength", "maxLength")


@dataclass(frozen=True)
class _Cost:
    """At the costliest place in a schema. `multiples`: how many values of multipleOf."""

    alternatives: int = 1
    conditions: int = 0
    multiples: int = 0

    def beside(self, other: _Cost) -> _Cost:
        """Of two schemas for different values."""
        return _Cost(
            max(self.alternatives, other.alternatives),
            max(self.conditions, other.conditions),
            max(self.multiples, other.multiples),
        )

    def joined(self, other: _Cost) -> _Cost:
        """Of two schemas for the same value."""
        return _Cost(
            min(self.alternatives * other.alternatives, 10**9),
            self.conditions + other.conditions,
            self.multiples + other.multiples,
        )


class TooLarge(GrammarError):
    """Refused however lenient the caller is."""


class Size:
    """What a schema holds, counted while it is read: work and memory grow with the square of it."""

    def __init__(self) -> None:
        self._num_nodes = self._num_chars = 0

    def add(self, num_nodes: int, num_chars: int = 0) -> None:
        """Raises TooLarge."""
        self._num_nodes += num_nodes
        self._num_chars += num_chars
        if self._num_nodes > MAX_NODES:
            raise TooLarge(f"the schema holds more than {MAX_NODES} schemas, required names and members of constants")
        if self._num_chars > MAX_FIXED_CHARS:
            raise TooLarge(f"the schema's names and constants have more than {MAX_FIXED_CHARS} characters")

    def add_values(self, values: Sequence[Any]) -> None:
        """The values of an enum, or the one of a constant. Raises TooLarge."""
        self.add(sum(map(_num_members, values)), max(map(_num_chars, values)))


def _num_members(value: Any) -> int:
    """A list or object, what is in it and what is in that; nothing of all else."""
    if not isinstance(value, dict | list):
        return 0
    inside = value.values() if isinstance(value, dict) else value
    return 1 + sum(max(1, _num_members(one)) for one in inside)


def _num_chars(value: Any) -> int:
    """Of the strings and names in a value."""
    if isinstance(value, dict):
        return sum(map(len, value)) + sum(map(_num_chars, value.values()))
    if isinstance(value, list):
        return sum(map(_num_chars, value))
    return len(value) if isinstance(value, str) else 0


def check_levels(definitions: Mapping[str, Any]) -> None:
    """Raises GrammarError if following the definitions may go too deep."""
    levels = sum(_depth(one) for one in definitions.values())
    if levels > MAX_LEVELS:
        raise GrammarError(f"the schema's definitions have {levels} levels in all, more than {MAX_LEVELS}")


def check_cost(root: Mapping[str, Any], definitions: Mapping[str, Any]) -> None:
    """Raises GrammarError if a schema in normal form may take too long, or too much memory, to compile."""
    _Estimate(definitions).of(root)


def _children(node: Mapping[str, Any]) -> Iterator[Any]:
    """The schemas of the values inside a value."""
    for key in ("properties", "patternProperties"):
        yield from node.get(key, {}).values()
    yield from node.get("prefixItems", ())
    for key in ("items", "additionalProperties"):
        if key in node:
            yield node[key]


def _depth(node: Any) -> int:
    if isinstance(node, bool):
        return 1
    inside = [*_children(node), *node.get("allOf", ()), *node.get("anyOf", ())]
    return 1 + max(map(_depth, inside), default=0)


class _Estimate:
    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._known: dict[str, _Cost] = {}

    def of(self, node: Any) -> _Cost:
        """Raises GrammarError."""
        if isinstance(node, bool):
            return _Cost()
        options = [self.of(option) for option in node.get("anyOf", ())]
        parts = [self._own(node), *(self.of(part) for part in node.get("allOf", ()))]
        if options:
            widest = _Cost()
            for option in options:
                widest = widest.beside(option)
            parts.append(_Cost(sum(o.alternatives for o in options), widest.conditions, widest.multiples))
        if "$ref" in node:
            parts.append(self._reference(node["$ref"].removeprefix(_PREFIX)))
        said = [part for part in parts if part != _Cost()]
        whole = _Cost()
        for part in said:
            whole = whole.joined(part)
        if len(said) > 1:
            _check(whole, len(said))
        return whole

    def _own(self, node: Mapping[str, Any]) -> _Cost:
        conditions = ("pattern" in node) + any(key in node for key in _LENGTHS)
        own = _Cost(len(node.get("enum", "1")), conditions, int("multipleOf" in node))
        for child in _children(node):
            own = own.beside(self.of(child))
        return own

    def _reference(self, name: str) -> _Cost:
        if name not in self._known:
            self._known[name] = _Cost()  # of a definition within itself: it is not joined with itself again
            self._known[name] = self.of(self._definitions[name])
        return self._known[name]


def _check(cost: _Cost, num_parts: int) -> None:
    if cost.alternatives > MAX_ALTERNATIVES:
        raise GrammarError(
            f"the schema joins {num_parts} conditions with {cost.alternatives} combinations of their alternatives (by "
            f"allOf, anyOf or enum beside other keywords or a $ref), more than {MAX_ALTERNATIVES}: make it simpler"
        )
    if cost.conditions > MAX_CONDITIONS:
        raise GrammarError(
            f"the schema joins {cost.conditions} conditions (patterns, formats and lengths) on one string, more than "
            f"{MAX_CONDITIONS}: make it simpler"
        )
    if cost.multiples > 1:
        raise GrammarError(
            "the schema joins two values of multipleOf on one number; give their common multiple instead"
        )
