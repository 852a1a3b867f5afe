"""The engine's counts as it keeps them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tenuto.engine.kv_cache import KVCache
from tenuto.engine.session import Session
from tenuto.protocol.counters import NUM_STEP_SIZES, EngineLevels, StepSizes


@dataclass(slots=True)
class SizeCounts:
    """Steps by size, in powers of two."""

    counts: list[int] = field(default_factory=lambda: [0] * NUM_STEP_SIZES)
    total: int = 0

    def add(self, size: int) -> None:
        self.counts[min((size - 1).bit_length(), NUM_STEP_SIZES - 1)] += 1
        self.total += size

    def value(self) -> StepSizes:
        return StepSizes(counts=tuple(self.counts), total=self.total)


@dataclass(slots=True)
class Counts:
    """What the stepper counts; see `EngineCounters` for the meaning of each."""

    steps: int = 0
    computed: int = 0
    recomputed: int = 0
    decodes: int = 0
    sampled: int = 0
    forced: int = 0
    drafted: int = 0
    accepted: int = 0
    shared: int = 0
    copies: int = 0
    failed_steps: int = 0
    step_requests: SizeCounts = field(default_factory=SizeCounts)
    step_tokens: SizeCounts = field(default_factory=SizeCounts)

    def add_step(self, num_requests: int, num_tokens: int, num_copies: int) -> None:
        self.steps += 1
        self.copies += num_copies
        self.step_requests.add(num_requests)
        self.step_tokens.add(num_tokens)


def levels_of(cache: KVCache, sessions: Iterable[Session], *, num_waiting: int, num_running: int) -> EngineLevels:
    """How things stand with the pool and the sessions."""
    opened = list(sessions)
    suspended = [session for session in opened if session.phase == "suspended"]
    return EngineLevels(
        num_waiting=num_waiting,
        num_running=num_running,
        num_sessions=len(opened),
        num_suspended=len(suspended),
        num_suspended_tokens=sum(session.table.num_computed for session in suspended),
        num_blocks=cache.num_blocks,
        num_blocks_free=cache.num_blocks - cache.num_owned - cache.num_cached,
        num_blocks_cached=cache.num_cached,
        num_blocks_owned=cache.num_owned - cache.num_shared,
        num_blocks_shared=cache.num_shared,
    )
