"""What goes wrong with a body on its way: wrong values at any place, and bytes that are no JSON any more."""

from __future__ import annotations

import copy
import random
from typing import Any

ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**30, 1e308, 0.5, float("nan"), float("inf"),
    "", "x", "\ud800", "\x00", "北京", "👨‍👩‍👧", "a" * 3000, "<|im_start|>", "../../etc/passwd", [], {},
    [None], [[]], {"": 1},
    {"type": "function"}, [{"role": "user"}], ["x"] * 600, "\u2028", "resp_1", "\udfff\ud800",
)  # fmt: skip
EXTRA_NAMES = ("extra", "n", "stream", "tools", "session_id", "id", "logprobs", "functions", "stream_options", "", "名")


def damage(value: Any, rng: random.Random) -> Any:
    """The value with one to three places changed."""
    value = copy.deepcopy(value)
    for _ in range(rng.randint(1, 3)):
        value = _changed(value, rng)
    return value


def _changed(value: Any, rng: random.Random) -> Any:
    places = list(_places(value))
    if not places or rng.random() < 0.03:
        return copy.deepcopy(rng.choice(ODD_VALUES))
    holder, key = rng.choice(places)
    kind = rng.choice(("replace", "replace", "remove", "extra", "deep", "double", "number"))
    if kind == "replace":
        holder[key] = copy.deepcopy(rng.choice(ODD_VALUES))
    elif kind == "remove":
        del holder[key]
    elif kind == "deep":
        for _ in range(rng.choice((2, 15, 40))):
            holder[key] = [holder[key]] if rng.random() < 0.5 else {"a": holder[key]}
    elif kind == "double" and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(holder[key]))
    elif kind == "number" and type(holder[key]) is int:
        holder[key] += rng.choice((-1, 1, 10, 2**31, -(2**40)))
    elif isinstance(holder, dict):
        holder[rng.choice(EXTRA_NAMES)] = copy.deepcopy(rng.choice(ODD_VALUES))
    return value


def _places(value: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    below = [value]
    while below:
        one = below.pop()
        for key in list(one) if isinstance(one, dict) else range(len(one)) if isinstance(one, list) else ():
            found.append((one, key))
            below.append(one[key])
    return found


def damage_bytes(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    """What was done, and what came of it."""
    at = rng.randint(0, len(content))
    match rng.choice(("cut", "cut", "flip", "insert", "empty", "oversized", "duplicate", "deep", "bom", "noise")):
        case "cut":
            return "truncated", content[:at]
        case "flip" if content:
            at = min(at, len(content) - 1)
            return "flipped byte", content[:at] + bytes([content[at] ^ (1 << rng.randrange(8))]) + content[at + 1 :]
        case "empty":
            return "empty", b""
        case "oversized":
            return "oversized", content[:at] + b" " * 13_000 + content[at:]
        case "duplicate":
            return "duplicate keys", b'{"model": 1, "stream": {}, ' + content[1:-1] + b', "model": "default"}'
        case "deep":
            return "deep nesting", b'{"a":' * 3000 + b"1" + b"}" * 3000
        case "bom":
            return "byte order mark", b"\xef\xbb\xbf" + content
        case "noise":
            return "noise", rng.randbytes(rng.randint(1, 40))
    return "inserted bytes", content[:at] + rng.randbytes(rng.randint(1, 4)) + content[at:]


def cut(content: bytes, rng: random.Random) -> list[bytes]:
    """In pieces, anywhere: inside characters, and empty ones too."""
    if rng.random() < 0.4:
        return [content]
    places = sorted(rng.randint(0, len(content)) for _ in range(rng.choice((1, 2, 5, 30))))
    return [content[a:b] for a, b in zip([0, *places], [*places, len(content)], strict=True)]
