"""Hostile and malformed grammars: no crash, no hang, no memory beyond a bound. In a process that may be killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def _feed(first: int, count: int) -> dict[str, int]:
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(TESTS / "hostile_grammars.py"), str(first), str(count)],
        capture_output=True,
        text=True,
        timeout=1500,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    outcomes: dict[str, int] = json.loads(done.stdout)
    assert outcomes["compiled"] > count // 10 and outcomes["refused"] > count // 10
    return outcomes


def test_hostile_grammars_are_refused_or_followed() -> None:
    _feed(0, 200)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_many_hostile_grammars_are_refused_or_followed() -> None:
    _feed(1_000_000, 12_500)
