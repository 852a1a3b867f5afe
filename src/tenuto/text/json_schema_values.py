"""Values inside a schema: which can be written exactly, and which bounds can be held exactly."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any

from tenuto.errors import GrammarError

_MAX_EXACT = 2**53  # beyond it the library's numbers, which are doubles, skip some
_MAX_STEP_DIGITS = 9_999
# Only characters that have one spelling are written, so that no name can be written in two ways.
_NOT_WRITTEN = re.compile("[\x00-\x07\x0b\x0e-\x1f\x7f\ud800-\udfff]")


def check_writable(value: Any, path: str) -> None:
    """Raises GrammarError if a value of `enum` or `const` cannot be written exactly."""
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            for name in one:
                writable_name(name, path)
            pending += one.values()
        elif isinstance(one, list):
            pending += one
        elif isinstance(one, str):
            if found := _NOT_WRITTEN.search(one):
                raise GrammarError(f"schema at {path}: the character U+{ord(found[0]):04X} is never written")
        elif isinstance(one, int | float) and not isinstance(one, bool):
            number(one, path)


def writable_name(name: str, path: str) -> None:
    """Raises GrammarError if a property cannot have this name."""
    if found := _NOT_WRITTEN.search(name):
        raise GrammarError(f"schema at {path}: a name with the character U+{ord(found[0]):04X} is never written")


def number(value: Any, path: str) -> int | float:
    """A bound or constant, if doubles hold it exactly. Raises GrammarError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise GrammarError(f"schema at {path}: a number is needed")
    if abs(value) > _MAX_EXACT:
        raise GrammarError(f"schema at {path}: numbers beyond 2^53 are not supported")
    if value and abs(value) < 1e-9:
        raise GrammarError(f"schema at {path}: numbers smaller than 1e-9 are not supported")
    return int(value) if float(value).is_integer() else value


def count(value: Any, path: str) -> int:
    """A length or number of items. Raises GrammarError."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise GrammarError(f"schema at {path}: a whole number of at least 0 is needed")
    return min(value, 2**32)


def decimal_step(value: Any, path: str) -> int | float:
    """`multipleOf`, if the library reads it as the decimal it is. Raises GrammarError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise GrammarError(f"schema at {path}: a number above 0 is needed")
    digits, exponent = Decimal(repr(value)).normalize(), 0
    as_read = float(value)
    while not as_read.is_integer() and exponent < 12:
        as_read, exponent = as_read * 10, exponent + 1
    if Decimal(as_read).scaleb(-exponent) != digits or as_read > _MAX_STEP_DIGITS:
        raise GrammarError(
            f"schema at {path}: `multipleOf` {value} is not supported: it has more than 4 digits, or no exact reading"
        )
    return int(value) if float(value).is_integer() else value
