"""How many bytes a loaded model holds, found by loading it without its weights.

The loader itself runs, on a device whose tensors have a shape and a type but no memory. So the answer follows every
family and every copy the loader makes, without a second table of them here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from tenuto.device import ReferenceDevice
from tenuto.device.cpu import CpuDevice, native_library
from tenuto.device.cpu.layers import PackedMatrix
from tenuto.device.cpu.scratch import Scratch
from tenuto.device.protocol import INTEGERS, Device, Floats, KVType, Precision
from tenuto.device.reference import TABLE_DTYPES, ReferenceLinear
from tenuto.device.row_tiles import RowTiles

ConfigT = TypeVar("ConfigT")
_NO_TILES = RowTiles((1,), exact=True)  # nothing is ever multiplied


def measuring_device(precision: Precision, kv_type: KVType = "float") -> Device:
    """The device of a precision, as `device.choose_device` picks it, keeping only shapes and types of weights."""
    library = native_library() if precision in INTEGERS else None
    if library is None:
        return _MeasuringReference(precision, kv_type=kv_type)
    return _MeasuringCpu(library, num_threads=1, kv_type=kv_type, precision=precision)


class _MeasuringReference(ReferenceDevice):
    def upload(self, values: Floats) -> Tensor:
        dtype = TABLE_DTYPES.get(self.precision, self._dtype)
        return torch.empty(values.shape, dtype=dtype, device="meta")

    def upload_norm(self, values: Floats) -> Tensor:
        return torch.empty(values.shape, dtype=torch.float32, device="meta")

    def prepare_linear(
        self, parts: Sequence[Floats], biases: Sequence[Floats] = (), *, exact: bool = False
    ) -> ReferenceLinear:
        num_in, num_out = parts[0].shape[1], sum(part.shape[0] for part in parts)
        bias = torch.empty(num_out, dtype=self._dtype, device="meta") if biases else None
        matrix = torch.empty((num_in, num_out), dtype=self._dtype, device="meta")
        return ReferenceLinear(matrix, num_in, _NO_TILES, bias)


class _MeasuringCpu(CpuDevice):
    def upload(self, values: Floats) -> Tensor:
        dtype = TABLE_DTYPES.get(self.precision, torch.float32)
        return torch.empty(values.shape, dtype=dtype, device="meta")

    def upload_norm(self, values: Floats) -> Tensor:
        return torch.empty(values.shape, dtype=torch.float32, device="meta")

    def prepare_linear(
        self, parts: Sequence[Floats], biases: Sequence[Floats] = (), *, exact: bool = False
    ) -> PackedMatrix:
        num_in, num_out = parts[0].shape[1], sum(part.shape[0] for part in parts)
        bias = torch.empty(num_out, device="meta") if biases else None
        bits = self._bits(exact)
        packed = torch.empty(self._packed_bytes(bits, num_out, num_in), dtype=torch.uint8, device="meta")
        return PackedMatrix(bits, packed, num_in, num_out, bias)


class Unread(Generic[ConfigT]):
    """A checkpoint of the right shapes whose tensors take no memory and are never read from a file."""

    def __init__(self, path: Path, config: ConfigT, shapes: dict[str, tuple[int, ...]]) -> None:
        self.path = path
        self.config = config
        self.name = path.name
        self._shapes = shapes

    def tensor_names(self) -> list[str]:
        return list(self._shapes)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._shapes[name]

    def read(self, name: str) -> Floats:
        return np.broadcast_to(np.zeros((), np.float32), self._shapes[name])


def held_bytes(model: object) -> int:
    """Bytes of all tensors that a loaded model, or any value of ours, holds."""
    return sum(tensor.nbytes for tensor in {id(t): t for t in _tensors(model)}.values())


def _tensors(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
    elif type(value).__module__.startswith("tenuto.") and not isinstance(value, ReferenceDevice | CpuDevice | Scratch):
        yield from _tensors(getattr(value, "__dict__", {}))
