"""Whatever was done to a model's files, the check answers: it runs, or a list of what is wrong. Never an exception."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from runnable_models import write_runnable
from tenuto.clock import RealClock
from tenuto.field import Conditions, check_model
from tiny_models import TinyLlama, write_gguf

CONDITIONS = Conditions(kv_tokens=1024, available_bytes=10**10, clock=RealClock())
VALUES = [None, True, -1, 0, 1.5, "x", "", [], {}, [1], {"a": 1}, [None], 2**70, 10**9, "\0", "词"]


def with_broken_bytes(draw: random.Random, content: bytes) -> bytes:
    data = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        if not data:
            break
        at = draw.randrange(draw.choice([min(64, len(data)), min(2000, len(data)), len(data)]))
        if draw.random() < 0.3:
            del data[at:]
        else:
            data[at] = draw.randrange(256)
    return bytes(data)


def break_value(draw: random.Random, value: Any) -> None:
    """Change one value somewhere inside a JSON value."""
    keys: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value)))
    if not keys:
        return
    key = draw.choice(keys)
    if isinstance(value[key], dict | list) and draw.random() < 0.5:
        break_value(draw, value[key])
    elif isinstance(value, dict) and draw.random() < 0.2:
        del value[key]
    else:
        value[key] = draw.choice(VALUES)


def with_broken_json(draw: random.Random, content: bytes) -> bytes:
    value = json.loads(content)
    for _ in range(draw.randint(1, 3)):
        break_value(draw, value)
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("seed", "count"), [(1, 60), *(pytest.param(s, 1000, marks=pytest.mark.soak) for s in range(2, 7))]
)
def test_a_broken_directory_gets_an_answer(tmp_path: Path, seed: int, count: int) -> None:
    draw = random.Random(seed)
    path = write_runnable(tmp_path / "m", sharded=True, template="{{ messages }}")
    files = {p: p.read_bytes() for p in sorted(path.iterdir())}
    outcomes = set()
    for _ in range(count):
        broken, content = draw.choice(list(files.items()))
        as_json = broken.suffix == ".json" and draw.random() < 0.8
        broken.write_bytes((with_broken_json if as_json else with_broken_bytes)(draw, content))
        report = check_model(path, CONDITIONS)
        assert report.runs != bool(report.problems)
        outcomes.add(report.runs)
        broken.write_bytes(content)
    assert outcomes == {True, False}
    assert check_model(path, CONDITIONS).runs


@pytest.mark.parametrize(
    ("seed", "count"), [(1, 40), *(pytest.param(s, 1000, marks=pytest.mark.soak) for s in range(2, 7))]
)
def test_a_broken_gguf_file_gets_an_answer(tmp_path: Path, seed: int, count: int) -> None:
    draw = random.Random(seed)
    path = tmp_path / "m.gguf"
    write_gguf(path, TinyLlama(), TinyLlama().weights(), "Q8_0")
    content = path.read_bytes()
    (whole,) = check_model(path, CONDITIONS).problems  # its made-up vocabulary, by design
    outcomes = set()
    for _ in range(count):
        path.write_bytes(with_broken_bytes(draw, content))
        report = check_model(path, CONDITIONS)
        assert report.runs == (not report.problems)  # a broken byte may also be what mends the vocabulary
        outcomes.add(report.problems == (whole,))
    assert outcomes == {True, False}
