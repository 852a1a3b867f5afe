"""What lets prepared matrices be kept on disk: a device that can tell their memory and take it back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from tenuto.device.protocol import LinearWeight

ALIGNMENT = 64  # bytes: packed memory begins on a cache line


@dataclass(frozen=True)
class PackedLinear:
    """A prepared matrix as plain memory."""

    form: str  # which of the device's forms, "int8" or "int4"
    in_features: int
    out_features: int
    packed: Tensor  # uint8 [bytes], 64-byte aligned; only ever read
    bias: Tensor | None  # float32 [out]


@runtime_checkable
class PackingDevice(Protocol):
    """A device whose prepared matrices may outlive the process."""

    @property
    def packed_format(self) -> str:
        """Name and version of the packed form: differs whenever the same matrix would be packed into other bytes."""
        ...

    def export_linear(self, weight: LinearWeight) -> PackedLinear:
        """The memory of a matrix that `prepare_linear` made; nothing is copied."""
        ...

    def import_linear(self, packed: PackedLinear) -> LinearWeight:
        """The matrix again, over the same memory. Raises ValueError for a form or sizes that are none of this device's:
        kernels read the memory as far as the sizes say."""
        ...
