"""What `tenuto bench kernels` measured: values only."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Arithmetic: TypeAlias = Literal["int8", "fp32"]
Bound: TypeAlias = Literal["reading", "int8", "fp32"]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Measured in bare loops in the same run, on as many threads as the kernels have; the best of several."""

    num_threads: int
    instruction_set: str  # of the kernels
    step_bytes: int  # of the buffer that `read` was measured with: what a decode step streams
    read: float  # bytes/s over that buffer, again and again
    read_memory: float  # bytes/s over a buffer far larger than any cache
    int8: float  # operations/s of the best vector instruction
    int8_tiles: float  # of AMX; 0: the machine or the system has none
    fp32: float

    def peak(self, arithmetic: Arithmetic) -> float:
        """Of vector instructions."""
        return self.int8 if arithmetic == "int8" else self.fp32

    def floor(self, num_bytes: int, num_operations: int, arithmetic: Arithmetic) -> tuple[float, Bound]:
        """The least seconds that work can take, and what they are spent on: its bytes, or its operations (Williams,
        Waterman, Patterson, "Roofline: an insightful visual performance model", 2009)."""
        reading, computing = num_bytes / self.read, num_operations / self.peak(arithmetic)
        return (reading, "reading") if reading >= computing else (computing, arithmetic)

    def merged(self, other: Limits) -> Limits:
        """The better of two measurements of one machine, each rate by itself."""
        rates = ("read", "read_memory", "int8", "int8_tiles", "fp32")
        return msgspec.structs.replace(self, **{name: max(getattr(self, name), getattr(other, name)) for name in rates})


class KernelTime(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel at one size."""

    kernel: str
    setting: str
    rows: int
    time_s: float  # of one call, the best of `num_runs` passes
    median_s: float
    num_runs: int
    num_bytes: int  # weights and KV, or the rows of kernels that have neither
    num_operations: int
    arithmetic: Arithmetic  # that the peak is of
    floor_s: float
    bound: Bound  # what the floor is spent on

    def against(self, limits: Limits) -> KernelTime:
        """The same, with the floor of these limits."""
        floor_s, bound = limits.floor(self.num_bytes, self.num_operations, self.arithmetic)
        return msgspec.structs.replace(self, floor_s=floor_s, bound=bound)

    @property
    def of_limit(self) -> float:
        """The part of the machine's best that it reaches; above 1 where what is read lies in a cache."""
        return self.floor_s / self.time_s

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.num_operations / self.num_bytes


class StepTime(msgspec.Struct, frozen=True, kw_only=True):
    """One whole forward call of the model."""

    step: str
    rows: int
    num_sessions: int
    num_context: int  # tokens of each session before the step
    time_s: float
    median_s: float
    num_runs: int
    weight_bytes: int
    kv_bytes: int
    num_operations: int  # of the products with weights
    arithmetic: Arithmetic
    read_per_s: float  # measured between these steps
    stream_s: float  # of reading weights and KV once at that rate
    compute_s: float  # of the operations at the vector peak

    def against(self, limits: Limits) -> StepTime:
        """The same, with the peak of these limits."""
        return msgspec.structs.replace(self, compute_s=self.num_operations / limits.peak(self.arithmetic))

    @property
    def of_streaming(self) -> float:
        """How many times the reading of its weights and KV it takes."""
        return self.time_s / self.stream_s

    @property
    def of_peak(self) -> float:
        """Of the vector peak, counting the matrices' operations only."""
        return self.compute_s / self.time_s


class KernelReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything, as --json prints it."""

    model: str
    precision: str
    kv_type: str
    machine: dict[str, str]
    limits: Limits
    kernels: tuple[KernelTime, ...]
    steps: tuple[StepTime, ...]
