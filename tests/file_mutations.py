"""Seeded changes to files: blind ones to bytes, and ones that know JSON, safetensors and GGUF."""

from __future__ import annotations

import json
import struct
from random import Random
from typing import Any

_NUMBERS = (0, 1, 2, 7, 31, 255, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 1000, 2**31, 2**63, -(2**63), 10**400, 0.0, -0.5, 1e-320, 1e308, float("nan"),
    float("inf"), "", "天气", "a" * 5000, "\u0000", "\ud800", "\x1b[2J", [], [0], [1, 2, 3], {}, {"a": {}}, [None],
    "gelu", "yarn", "F32", "F64", "F8_E4M3", "I32", "BPE", "Unigram", "(a+)+$", "model.norm.weight", "../x", [[]],
)  # fmt: skip
_GGUF_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def mutate(name: str, data: bytes, random: Random) -> bytes:
    """One file's bytes, changed in a way that suits its name half of the time, blindly otherwise."""
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        if random.random() < 0.3:
            data = _blind(data, random, len(data))
        elif name.endswith(".json"):
            data = _json_bytes(data, random)
        elif name.endswith(".safetensors"):
            data = _safetensors(data, random)
        elif name.endswith(".gguf"):
            data = _gguf(data, random)
    return data


def _blind(data: bytes, random: Random, up_to: int) -> bytes:
    if not data:
        return random.randbytes(random.randrange(64))
    at = random.randrange(max(1, min(up_to, len(data))))
    length = min(random.choice((1, 2, 4, 8, 8, 64, 1000)), len(data) - at)
    match random.randrange(8):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + data[at + length :]
        case 2:
            return data[: at + length] + data[at:]
        case 3:
            return data[:at] + random.randbytes(length) + data[at + length :]
        case 4:
            return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]
        case 5:
            return data[:at] + bytes(length) + data[at + length :]
        case 6:
            return data[:at] + random.choice(_NUMBERS).to_bytes(8, "little") + data[at + 8 :]
        case _:
            return data[:at] + random.choice((b"\xff", b"[", b"{", b'"', b"[" * 20_000, b"0" * 6000)) + data[at:]


def _json_bytes(data: bytes, random: Random) -> bytes:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return _blind(data, random, len(data))
    return json.dumps(_json_value(value, random), ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass")


def _json_value(value: Any, random: Random) -> Any:
    """The same value, changed in one place that is picked by walking down."""
    if isinstance(value, dict) and value and random.random() < 0.85:
        key = random.choice(list(value))
        match random.randrange(8):
            case 0:
                return {k: v for k, v in value.items() if k != key}
            case 1:
                return value | {random.choice([*value, "x", "天"]): value[key]}
            case 2:
                return {(k if k != key else k + "x"): v for k, v in value.items()}
            case _:
                return value | {key: _json_value(value[key], random)}
    if isinstance(value, list) and value and random.random() < 0.85:
        at = random.randrange(len(value))
        match random.randrange(8):
            case 0:
                return value[:at] + value[at + 1 :]
            case 1:
                return value[: at + 1] + value[at:]
            case 2:
                return value * random.choice((2, 100))
            case _:
                return [*value[:at], _json_value(value[at], random), *value[at + 1 :]]
    if type(value) in (int, float) and random.random() < 0.6:
        change = random.choice((value + 1, value - 1, -value, value * 2, value * 10**6, value // 2))
        return change if random.random() < 0.5 else random.choice(_NUMBERS)
    if isinstance(value, str) and value and random.random() < 0.3:
        at = random.randrange(len(value))
        return value[:at] + random.choice(("", "x", "天", "\u0000", value)) + value[at + random.randrange(2) :]
    return random.choice(_VALUES)


def _safetensors(data: bytes, random: Random) -> bytes:
    length = int.from_bytes(data[:8], "little")
    header, body = data[8 : 8 + length], data[8 + length :]
    match random.randrange(6):
        case 0:
            return random.choice(_NUMBERS).to_bytes(8, "little") + data[8:]
        case 1:
            return data[: 8 + length] + _blind(body, random, len(body))
        case 2:
            header = _blind(header, random, len(header))
        case _:
            header = _json_bytes(header, random)
    return len(header).to_bytes(8, "little") + header + body


def _gguf(data: bytes, random: Random) -> bytes:
    """Overwrite one of the numbers that the header is made of, or something near its beginning or end."""
    places = gguf_places(data)
    if not places or random.random() < 0.15:
        return _blind(data, random, places[-1][0] if places else len(data))
    at, size = random.choice(places)
    old = int.from_bytes(data[at : at + size], "little")
    new = random.choice((old + 1, old - 1, old * 2, old ^ 1, 0, random.randrange(40), random.choice(_NUMBERS)))
    return data[:at] + (new % (1 << 8 * size)).to_bytes(size, "little") + data[at + size :]


def gguf_places(data: bytes) -> list[tuple[int, int]]:
    """Offset and bytes of every count, length, type, dimension and scalar of a header, as far as it can be followed."""
    places: list[tuple[int, int]] = []
    at = 0

    def take(size: int) -> int:
        nonlocal at
        if at + size > len(data):
            raise EOFError
        places.append((at, size))
        at += size
        return int.from_bytes(data[at - size : at], "little")

    def skip_string() -> None:
        nonlocal at
        at += take(8)

    def skip_value(kind: int) -> None:
        nonlocal at
        if kind == 8:
            skip_string()
        elif kind == 9:
            item, count = take(4), take(8)
            for _ in range(min(count, 5000)):
                skip_value(item)
        else:
            take(_GGUF_SIZES.get(kind, 8))

    try:
        take(4)
        take(4)
        num_tensors, num_entries = take(8), take(8)
        for _ in range(min(num_entries, 5000)):
            skip_string()
            skip_value(take(4))
        for _ in range(min(num_tensors, 5000)):
            skip_string()
            for _ in range(min(take(4), 8)):
                take(8)
            take(4)
            take(8)
    except (EOFError, RecursionError, struct.error):
        pass
    return places
