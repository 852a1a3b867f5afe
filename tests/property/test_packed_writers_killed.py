"""Processes that write and read one cache of prepared weights, and are killed at any moment."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tenuto.device.packing import PackedLinear
from tenuto.model import PackedCache, PackedCacheLimits
from tenuto.model.packed_file import Prepared

KEYS = [letter * 64 for letter in "abc"]

WORKER = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_packed_writers_killed import KEYS, made, sound
from tenuto.model import PackedCache, PackedCacheLimits
cache = PackedCache(Path(sys.argv[1]), PackedCacheLimits(25_000_000, 0), time.time)
print("ready", flush=True)
while True:
    for key in KEYS:
        found = cache.find(key)
        if found is None:
            cache.keep(key, "m", made(key))
        elif not sound(found, key):
            print("wrong", flush=True)
"""


def made(key: str) -> dict[str, Prepared]:
    """About 10 MB, so that a write takes a while; other contents for each key."""
    draw = torch.Generator().manual_seed(ord(key[0]))
    packed = torch.randint(0, 256, (8_000_000,), dtype=torch.uint8, generator=draw)
    return {"table": torch.randn(500_000, generator=draw), "linear:x": PackedLinear("int8", 1, 1, packed, None)}


def sound(found: object, key: str) -> bool:
    wanted = made(key)
    packed = wanted["linear:x"].packed  # type: ignore[union-attr]
    return torch.equal(found.table("table"), wanted["table"]) and torch.equal(found.linear("linear:x").packed, packed)  # type: ignore[attr-defined]


@pytest.mark.soak
def test_whatever_dies_nothing_half_is_ever_found(tmp_path: Path) -> None:
    draw = random.Random(5)
    command = [sys.executable, "-c", WORKER, str(tmp_path), str(Path(__file__).parent)]
    for _ in range(12):
        workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        for worker in workers:
            assert worker.stdout is not None and worker.stdout.readline() == "ready\n"
        time.sleep(draw.uniform(0.0, 1.0))
        for worker in workers:
            os.kill(worker.pid, signal.SIGKILL)
            assert worker.stdout is not None and "wrong" not in worker.stdout.read()
            worker.wait(30)
            worker.stdout.close()
        cache = PackedCache(tmp_path, PackedCacheLimits(25_000_000, 0), time.time)
        for key in KEYS:
            found = cache.find(key)
            assert found is None or sound(found, key)
        assert sum(kept.num_bytes for kept in cache.list()) <= 25_000_000
    cache.keep(KEYS[0], "m", made(KEYS[0]))  # the dead have left no lock
    found = cache.find(KEYS[0])
    assert found is not None and sound(found, KEYS[0])
    assert not list(tmp_path.glob("*.new"))
