"""The engine's counts as it keeps them."""

from __future__ import annotations

from dataclasses import dataclass, field

from tenuto.protocol.counters import NUM_STEP_SIZES, StepSizes


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
