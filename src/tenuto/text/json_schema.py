"""JSON Schema made exact: checked keyword by keyword, and rewritten to what llguidance enforces.

The library enforces most keywords exactly, some only nearly, and does not say which. So a schema first comes here: a
keyword that a grammar cannot hold is refused by name and place, one that it can is passed on, or rewritten: patterns
and formats to expressions of ours, `oneOf` to `anyOf` where its options exclude one another, references to flat
definitions. What comes out uses a small part of JSON Schema, which tests compare with an independent validator.

Sources: JSON Schema draft 2020-12, Core and Validation; draft 7 for the older spellings.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tenuto.errors import GrammarError
from tenuto.protocol.grammar import Relaxation
from tenuto.text.json_schema_limits import TooLarge, check_cost, check_levels
from tenuto.text.json_schema_reader import SchemaReader
from tenuto.text.json_schema_sense import bare_cycle, prune_endless


@dataclass(frozen=True)
class Normal:
    """A schema as llguidance takes it, and what of the original it does not hold (only where that was allowed)."""

    schema: dict[str, Any]
    relaxed: tuple[Relaxation, ...] = ()


def parse_schema(source: str) -> Any:
    """A schema's JSON text. Raises GrammarError."""
    try:
        return json.loads(source, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise GrammarError(f"the JSON Schema is not JSON: {reason}") from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value")


def normalise(schema: Any, *, strict: bool = True, root: Any = None, at: str = "#") -> Normal:
    """
    Args:
        schema: parsed JSON.
        root: what references are followed in, where the schema is only a part; `at`: the part's path in it.
        strict: refuse what cannot be enforced. Otherwise such a keyword is left out, so that more values pass there,
            and told in `relaxed`; all others are enforced.

    Raises:
        GrammarError: a keyword is not supported, malformed or contradictory, by path; or no finite value exists; or,
            strict or not, the schema is too large or nested too deep.
    """
    try:
        return _normalise(SchemaReader(schema, strict, root, at))
    except TooLarge as error:
        raise GrammarError(str(error)) from error
    except RecursionError as error:
        raise GrammarError("the schema's definitions lead into one another too deep") from error


def _normalise(reader: SchemaReader) -> Normal:
    root = reader.root()
    check_levels(reader.definitions)
    if (name := bare_cycle(reader.definitions)) is not None:
        raise GrammarError(f"schema at {reader.pointer(name)}: it refers to itself with nothing in between")
    definitions, root = prune_endless(reader.definitions, root)
    if root is False:
        raise GrammarError(f"schema at {reader.at}: no finite value can satisfy it")
    whole = {} if root is True else dict(root)
    check_cost(whole, definitions)
    if definitions:
        whole["$defs"] = definitions
    return Normal(whole, tuple(reader.relaxed))
