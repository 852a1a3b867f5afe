"""The fake executor with faults, and a memory of what it was asked to compute."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from tenuto.engine import Batch, KVForm, Output
from tenuto.ids import TokenId
from tenuto.testing.fake_executor import FakeExecutor
from tenuto.testing.world_history import History


class DeviceFault(RuntimeError):
    """What the simulated device raises."""


class FaultyExecutor:
    """Fails now and then: before, halfway through or after the step, or with an output that cannot be used.

    An assertion of the fake executor is no fault but a violation.
    """

    def __init__(self, inner: FakeExecutor, rng: random.Random, fault: float, history: History) -> None:
        self.fault = fault  # chance per step
        self.inner = inner
        self._rng = rng
        self._history = history

    def execute(self, batch: Batch) -> Output:
        if self._rng.random() >= self.fault:
            return self._compute(batch)
        kind = self._rng.choice(("before", "halfway", "after", "missing", "out of range"))
        self._history.count(f"step fault: {kind}")
        if kind == "halfway":
            self._compute(msgspec.structs.replace(batch, slices=batch.slices[: len(batch.slices) // 2]))
        elif kind != "before":
            output = self._compute(batch)
            if kind == "missing":
                return Output(output.token_ids[:-1])
            if kind == "out of range" and batch.slices[0].samples:
                ids = (TokenId(self.inner.vocab_size), *output.token_ids[1:])
                return msgspec.structs.replace(output, token_ids=ids)
        raise DeviceFault(f"simulated device fault {kind} the step")

    @property
    def kv_form(self) -> KVForm:
        return self.inner.kv_form

    def read_kv(self, slots: Sequence[int]) -> bytes:
        return self.inner.read_kv(slots)

    def write_kv(self, slots: Sequence[int], data: bytes) -> None:
        self.inner.write_kv(slots, data)

    def _compute(self, batch: Batch) -> Output:
        try:
            return self.inner.execute(batch)
        except AssertionError as error:
            self._history.violate(error)
            raise
