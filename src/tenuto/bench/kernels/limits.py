"""What the machine can do at best, by the bare loops of native/probe.cpp."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from tenuto.bench.kernels.report import Limits
from tenuto.bench.kernels.timing import Effort, Timing, time_runs
from tenuto.device.cpu import NativeLibrary

_LOOP_S = 0.02  # of one run: far longer than threads take to start


@dataclass(frozen=True)
class Probe:
    """The machine's bare loops.

    Args:
        num_threads: as many as the kernels have.
        now: seconds, steady.
    """

    library: NativeLibrary
    num_threads: int
    now: Callable[[], float]
    effort: Effort

    def limits(self, step_bytes: int, memory_bytes: int) -> Limits:
        """
        Args:
            step_bytes: what a decode step streams.
            memory_bytes: of the buffer that no cache holds.
        """
        return Limits(
            num_threads=self.num_threads,
            instruction_set=self.library.instruction_set,
            step_bytes=step_bytes,
            read=self.read_per_s(step_bytes),
            read_memory=self.read_per_s(memory_bytes),
            int8=self.operations_per_s("int8"),
            int8_tiles=self.operations_per_s("int8-tiles"),
            fp32=self.operations_per_s("fp32"),
        )

    def read_per_s(self, num_bytes: int) -> float:
        """Bytes per second over a buffer of that size that is read again and again."""
        read = self.reader(num_bytes)
        return num_bytes / time_runs(read, self.now, self.effort).best_s

    def reader(self, num_bytes: int) -> Callable[[], object]:
        """Reads a buffer of its own once."""
        buffer = torch.ones(num_bytes, dtype=torch.uint8)
        return lambda: self.library.probe_read(buffer.data_ptr(), num_bytes, 1, self.num_threads)

    def operations_per_s(self, kind: str) -> float:
        """Multiplications and additions; 0 if the machine has no such instruction."""
        name = kind.encode()
        operations: int = self.library.probe_multiply(name, 1, 1)
        if not operations:
            return 0.0

        def timed(rounds: int) -> Timing:
            return time_runs(lambda: self.library.probe_multiply(name, rounds, self.num_threads), self.now, self.effort)

        rounds, start = 1000, self.now()
        self.library.probe_multiply(name, rounds, self.num_threads)
        rounds = max(1, round(rounds * _LOOP_S / max(self.now() - start, 1e-6)))
        return operations * rounds * self.num_threads / timed(rounds).best_s
