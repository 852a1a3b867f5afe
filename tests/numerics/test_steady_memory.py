"""Memory stays what it was: thousands of steps of eight agents, turn after turn, leave nothing behind.

The bounds are what an allocator may round: a step that kept one activation of its rows, or a few kilobytes of anything,
would pass them.
"""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
import torch

from family_models import FAMILY_MODELS, make, save
from ragged_batches import Query, ragged
from tenuto.checkpoint import open_checkpoint
from tenuto.device.cpu import CpuDevice, native_library
from tenuto.engine import Engine, EngineConfig
from tenuto.engine.executor import ModelExecutor
from tenuto.ids import SessionId, TokenId
from tenuto.model import Decoder, load_model
from tenuto.protocol.engine import GenerateParams, SamplingParams

LIBRARY = native_library()
STATM = Path("/proc/self/statm")
pytestmark = [
    pytest.mark.skipif(LIBRARY is None, reason="installed without a C++ compiler"),
    pytest.mark.skipif(not STATM.exists(), reason="the system does not tell a process's memory"),
]
NUM_AGENTS, MAX_TURNS = 8, 8
MEGABYTE = 1 << 20


def resident_bytes() -> int:
    gc.collect()
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Agents:
    """Eight agents on one engine: each generates, gets a result, goes on, and after some turns begins anew."""

    def __init__(self, decoder: Decoder, num_blocks: int) -> None:
        self._engine = Engine(
            EngineConfig(
                num_blocks=num_blocks,
                block_size=decoder.device.block_size,
                vocab_size=decoder.config.vocab_size,
                max_model_tokens=decoder.config.max_model_tokens,
                max_batch_tokens=64,
                max_chunk_tokens=32,
                max_running=NUM_AGENTS,
            )
        )
        self._executor = ModelExecutor(decoder, num_blocks)
        self._draw = random.Random(0)
        self._highest = decoder.config.vocab_size - 1
        self._names = (SessionId(f"agent-{number}") for number in count())
        self._turns: dict[SessionId, int] = {}
        self._of_request: dict[object, SessionId] = {}
        for _ in range(NUM_AGENTS):
            self._begin()

    def run(self, num_steps: int) -> int:
        """Returns how many steps decoded for all agents at once."""
        num_full = 0
        for step in range(num_steps):
            now = float(step)
            batch = self._engine.schedule(now)
            assert batch is not None
            num_full += sum(piece.samples for piece in batch.slices) == NUM_AGENTS
            for delta in self._engine.commit(batch, self._executor.execute(batch), now):
                assert delta.error is None
                if delta.done:
                    self._next_turn(self._of_request.pop(delta.request))
        self._engine.check_invariants()
        return num_full

    def _begin(self) -> None:
        session = next(self._names)
        self._engine.open(session, 0.0)
        self._turns[session] = 0
        self._next_turn(session)

    def _next_turn(self, session: SessionId) -> None:
        if self._turns[session] == MAX_TURNS:
            del self._turns[session]
            self._engine.close(session, 0.0)
            self._begin()
            return
        self._turns[session] += 1
        ids = [TokenId(self._draw.randint(3, self._highest)) for _ in range(20)]
        sampling = SamplingParams(temperature=1.0, seed=self._draw.randrange(1 << 30))
        params = GenerateParams(max_tokens=20, sampling=sampling)
        self._of_request[self._engine.generate(session, ids, params, 0.0)] = session


@pytest.fixture
def tiny(tmp_path: Path) -> Decoder:
    assert LIBRARY is not None
    path = save(make(FAMILY_MODELS["llama"]), tmp_path)
    return load_model(open_checkpoint(path), CpuDevice(LIBRARY, 2, "int8"))


@pytest.fixture
def embedded(embedded_model_path: Path) -> Decoder:
    assert LIBRARY is not None
    return load_model(open_checkpoint(embedded_model_path), CpuDevice(LIBRARY, 2, "int8"))


def growth_of_agents(decoder: Decoder, num_steps: int) -> Iterator[int]:
    """Bytes after each of four parts of the steps, over what it was after the first agents had come and gone."""
    agents = Agents(decoder, num_blocks=200)  # of eight times 320 tokens, and not all of what is cached
    agents.run(MAX_TURNS * 25)
    before = resident_bytes()
    for _ in range(4):
        assert agents.run(num_steps // 4) > num_steps // 10
        yield resident_bytes() - before


def growth_of_steps(decoder: Decoder, num_steps: int) -> int:
    kv = decoder.allocate_kv(NUM_AGENTS * 4)
    tables = [[4 * agent + block for block in range(4)] for agent in range(NUM_AGENTS)]

    def steps(number: int) -> None:
        for at in range(number):
            decoder.forward(ragged([Query([at % 50 + 3], at % 60, table) for table in tables]), kv)

    steps(60)
    before = resident_bytes()
    steps(num_steps)
    return resident_bytes() - before


def test_decode_steps_of_the_device(tiny: Decoder) -> None:
    with torch.inference_mode():
        assert growth_of_steps(tiny, 500) < MEGABYTE // 2


def test_agents_on_the_engine(tiny: Decoder) -> None:
    assert max(growth_of_agents(tiny, 400)) < MEGABYTE


@pytest.mark.soak
@pytest.mark.model
def test_two_thousand_steps_of_the_embedded_model(embedded: Decoder) -> None:
    assert growth_of_steps(embedded, 2000) < 2 * MEGABYTE


@pytest.mark.soak
@pytest.mark.model
def test_two_thousand_steps_of_agents_on_the_embedded_model(embedded: Decoder) -> None:
    assert max(growth_of_agents(embedded, 2000)) < 4 * MEGABYTE
