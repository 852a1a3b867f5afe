"""Memory that kernels work in, and memory that they read by the cache line."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def aligned(num_bytes: int) -> Tensor:
    """uint8 [num_bytes], on a cache line."""
    memory = torch.empty(num_bytes + 64, dtype=torch.uint8)
    return memory[-memory.data_ptr() % 64 :][:num_bytes]


def address(tensor: Tensor | None) -> int | None:
    """Where a tensor's numbers are, as the kernels take it; None: there is none."""
    return None if tensor is None else tensor.data_ptr()


class Scratch:
    """As much as was ever wanted at once; one call at a time uses it, since engines may share a device."""

    def __init__(self) -> None:
        self._memory = torch.empty(0, dtype=torch.uint8)
        self._lock = threading.Lock()

    @contextmanager
    def of(self, num_bytes: int) -> Iterator[int]:
        """The address of that many bytes."""
        with self._lock:
            if num_bytes > self._memory.numel():
                self._memory = aligned(num_bytes)
            yield self._memory.data_ptr()
