"""Mutated model files: they load, or end in an error of ours that names the file. No crash, no hang, bounded memory.

The bounds: 10 s of processor time an item, 1 GiB of address space and 300 MB of resident memory beyond the start.
"""

from __future__ import annotations

import re
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from random import Random
from unittest.mock import MagicMock

import pytest

from file_mutations import mutate
from fuzz_seeds import Seed, make_seeds
from tenuto.checkpoint import open_checkpoint
from tenuto.device import Device, ReferenceDevice
from tenuto.errors import ModelFileError, TenutoError
from tenuto.model import load_model
from tenuto.text.tokenizer import Tokenizer

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is watched through Linux's /proc")

_ITEM_S = 10.0
_ADDRESS_BYTES = 1 << 30
_RESIDENT_BYTES = 300_000_000
_SOAK_PARTS, _SOAK_ITEMS = 15, 2500
TEXT = "Hello, 天气 😀 <|im_start|>"


@lru_cache(maxsize=1)
def seeds() -> list[Seed]:
    return make_seeds()


def load(path: Path, device: Device) -> None:
    """What `wiring` does with a model's path."""
    checkpoint = open_checkpoint(path)
    tokenizer = Tokenizer.from_files(checkpoint.tokenizer, checkpoint.config.vocab_size)
    tokenizer.encode(TEXT)
    load_model(checkpoint, device)


def write(directory: Path, seed: Seed) -> Path:
    directory.mkdir()
    for name, data in seed.files.items():
        (directory / name).write_bytes(data)
    return directory / seed.opened


def resident_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


@contextmanager
def bounded() -> Iterator[None]:
    """Makes a greedy allocation fail, and a loop without end raise."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])

    def too_long(*_: object) -> None:
        raise TimeoutError(f"more than {_ITEM_S} s of processor time")

    before = signal.signal(signal.SIGVTALRM, too_long)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + _ADDRESS_BYTES, hard))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def fuzz(root: Path, first: int, count: int) -> int:
    """Loads `count` mutants; returns how many of them loaded."""
    homes = {seed.name: (seed, write(root / seed.name.replace(" ", "-"), seed)) for seed in seeds()}
    for _, path in homes.values():
        load(path, ReferenceDevice())
    loaded, at_start = 0, resident_bytes()
    with bounded():
        for number in range(first, first + count):
            random = Random(number)
            seed, path = homes[random.choice(list(homes))]
            name = random.choice(list(seed.files))
            place = path if seed.opened else path / name
            place.write_bytes(mutate(name, seed.files[name], random))
            signal.setitimer(signal.ITIMER_VIRTUAL, _ITEM_S)
            try:
                # The reference device measures row tiles for every matrix, which takes far longer than all the rest.
                load(path, ReferenceDevice() if number % 50 == 0 else MagicMock(spec=ReferenceDevice))
                loaded += 1
            except TenutoError as error:
                assert isinstance(error, ModelFileError), f"mutant {number}: {error!r}"
                assert str(error).encode() and len(str(error)) < 5000, f"mutant {number}"
            except BaseException as error:
                error.add_note(f"mutant {number} of {seed.name}, {name}")
                raise
            place.write_bytes(seed.files[name])
            assert resident_bytes() - at_start < _RESIDENT_BYTES, f"mutant {number}"
    return loaded


def test_seeds_are_valid(tmp_path: Path) -> None:
    for index, seed in enumerate(seeds()):
        load(write(tmp_path / str(index), seed), ReferenceDevice())


def test_mutants_load_or_are_refused(tmp_path: Path) -> None:
    assert 0 < fuzz(tmp_path, first=0, count=400) < 400


@pytest.mark.soak
@pytest.mark.parametrize("part", range(_SOAK_PARTS))
def test_many_mutants_load_or_are_refused(tmp_path: Path, part: int) -> None:
    assert 0 < fuzz(tmp_path, first=(part + 1) * _SOAK_ITEMS, count=_SOAK_ITEMS) < _SOAK_ITEMS
