"""compressed-tensors: matrices stored as [out, in], int8 or packed into 32-bit words, with scales by tensor, output or
group of inputs.

Only weights are quantised here: a checkpoint that was made for 8-bit activations (W8A8) is computed with its exact
weights, and with activations as they come.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tenuto.checkpoint.blocks import Bytes, Floats
from tenuto.checkpoint.quantised.fields import Indices, fields_along, fields_down, group_indices, num_words
from tenuto.checkpoint.quantised.scheme import Parts, QuantisedMatrix, expect_shape, float_part, whole_part
from tenuto.checkpoint.weight_file import StoredTensor
from tenuto.errors import ModelFileError

_CHUNK_ELEMENTS = 1 << 20  # decoded at once

Signed: TypeAlias = npt.NDArray[np.int8]


@dataclass(frozen=True)
class CompressedTensors:
    """`int-quantized` and `naive-quantized` store weight int8 [out, in]; `pack-quantized` weight_packed int32
    [out, in * bits / 32], less by 2 ** (bits - 1), and weight_shape. Both weight_scale, weight_zero_point
    (int8, or packed down the outputs) and weight_g_idx int32 [in]; weight[o, i] = (q - zero) * scale.
    """

    packed_bits: tuple[int, ...]  # that a packed matrix may have: shapes tell which
    group_sizes: tuple[int, ...]  # that a matrix may have

    parts = frozenset(
        {
            "weight", "weight_packed", "weight_scale", "weight_shape", "weight_zero_point", "weight_g_idx",
            "input_scale", "input_zero_point", "output_scale", "output_zero_point",
        }
    )  # fmt: skip
    # Of quantised queries, keys and values: the cache keeps the engine's precision.
    ignored = frozenset({f"{x}_{part}" for x in "qkv" for part in ("scale", "zero_point")})

    def holds(self, parts: Parts) -> bool:
        return "weight_packed" in parts or ("weight" in parts and parts["weight"].type_name == "I8")

    def matrix(self, parts: Parts) -> QuantisedMatrix:
        stored = self._packed(parts) if "weight_packed" in parts else _unpacked(parts)
        scales = float_part(parts, "weight_scale")
        groups = self._groups(scales, stored.shape)
        zeros = _zeros_part(parts, scales, stored, groups)
        order = None
        if "weight_g_idx" in parts and groups.size is not None:
            order = whole_part(parts, "weight_g_idx", "I32")
            expect_shape(order, (stored.shape[1],))

        def compute() -> Floats:
            rows_of_zeros = None if zeros is None else _read_zeros(zeros, stored, groups)
            return _dequantised(stored, groups.of_inputs(order), groups.rows_of(scales.read()), rows_of_zeros)

        used = tuple(tensor for tensor in (stored.tensor, scales, zeros, order) if tensor is not None)
        return QuantisedMatrix(used, stored.shape, f"compressed-tensors {stored.bits}-bit", compute)

    def _packed(self, parts: Parts) -> _Stored:
        tensor, size = whole_part(parts, "weight_packed", "I32"), whole_part(parts, "weight_shape", "I64", "I32")
        expect_shape(size, (2,))
        num_out, num_in = size.read_whole().tolist()
        if num_out == num_in == 0 and len(tensor.shape) == 2 and self.packed_bits:
            # A sketch of a model on a hub: only headers have content. What rows can hold is nearly always what they do.
            num_out, num_in = tensor.shape[0], tensor.shape[1] * 32 // self.packed_bits[0]
        for bits in self.packed_bits:
            if min(num_out, num_in) > 0 and tensor.shape == (num_out, num_words(num_in, bits)):
                return _Stored(tensor, (num_out, num_in), bits, packed=True)
        raise ModelFileError(
            f"{tensor.label} has shape {list(tensor.shape)}, which {num_out} rows of {num_in} elements of "
            f"{' or '.join(map(str, self.packed_bits)) or 'no'} bits do not fill"
        )

    def _groups(self, scales: StoredTensor, shape: tuple[int, int]) -> _Groups:
        num_out, num_in = shape
        if scales.shape in ((), (1,), (1, 1)):
            return _Groups(1, 1, None, num_in)
        if scales.shape in ((num_out,), (num_out, 1)):
            return _Groups(num_out, 1, None, num_in)
        sizes = [size for size in self.group_sizes if scales.shape == (num_out, -(-num_in // size))]
        if len(sizes) != 1:
            raise ModelFileError(
                f"{scales.label} has shape {list(scales.shape)}, which fits a matrix of {list(shape)} neither whole, "
                f"nor by output, nor in groups of {' or '.join(map(str, self.group_sizes)) or 'any size'}"
            )
        return _Groups(num_out, scales.shape[1], sizes[0], num_in)


@dataclass(frozen=True)
class _Stored:
    """The whole numbers of a matrix, as stored."""

    tensor: StoredTensor
    shape: tuple[int, int]
    bits: int
    packed: bool

    def rows(self) -> Callable[[int, int], Signed]:
        """Reads them; a range of rows is then [stop - start, in], int8."""
        words = self.tensor.read_whole()
        if not self.packed:
            return lambda start, stop: words[start:stop].view(np.int8)
        less = np.uint8(1 << (self.bits - 1))
        return lambda start, stop: _signed(fields_along(words[start:stop], self.bits)[:, : self.shape[1]], less)


@dataclass(frozen=True)
class _Groups:
    """Which elements share a scale."""

    num_rows: int  # 1, or the outputs
    num_columns: int
    size: int | None  # inputs of one group; None: a row is one group
    num_in: int

    def rows_of(self, scales: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return scales.reshape(self.num_rows, self.num_columns)

    def of_inputs(self, order: StoredTensor | None) -> Indices | None:
        """The group of each input; None if all are in one."""
        if self.size is None:
            return None
        # Without an order of activations, some exporters store one of -1 throughout.
        if order is not None and (order.read_whole() != -1).any():
            return group_indices(order, self.num_columns)
        return np.arange(self.num_in) // self.size


def _unpacked(parts: Parts) -> _Stored:
    tensor = whole_part(parts, "weight", "I8")
    if len(tensor.shape) != 2 or 0 in tensor.shape:
        raise ModelFileError(f"{tensor.label} has shape {list(tensor.shape)}, expected a matrix")
    return _Stored(tensor, (tensor.shape[0], tensor.shape[1]), 8, packed=False)


def _zeros_part(parts: Parts, scales: StoredTensor, stored: _Stored, groups: _Groups) -> StoredTensor | None:
    if "weight_zero_point" not in parts:
        return None
    zeros = whole_part(parts, "weight_zero_point", *(("I8", "I32") if stored.packed else ("I8",)))
    if zeros.type_name == "I8":
        expect_shape(zeros, scales.shape)
    else:
        expect_shape(zeros, (num_words(groups.num_rows, stored.bits), groups.num_columns))
    return zeros


def _read_zeros(tensor: StoredTensor, stored: _Stored, groups: _Groups) -> Signed:
    """[rows, columns] as the scales."""
    values = tensor.read_whole()
    if tensor.type_name == "I32":
        values = _signed(fields_down(values, stored.bits, 0, groups.num_rows), np.uint8(1 << (stored.bits - 1)))
    return groups.rows_of(values)


def _signed(fields: Bytes, less: np.uint8) -> Signed:
    return (fields - less).view(np.int8)


def _dequantised(stored: _Stored, groups: Indices | None, scales: Floats, zeros: Signed | None) -> Floats:
    """[out, in] of (q - zero) * scale; beside it, memory is needed for what is stored and for a few rows."""
    rows, out = stored.rows(), np.empty(stored.shape, np.float32)
    step = max(1, _CHUNK_ELEMENTS // stored.shape[1])

    def spread(values: npt.NDArray[Any], start: int) -> npt.NDArray[Any]:
        """Those of some rows, one for each element or one for a row."""
        part = values if len(values) == 1 else values[start : start + step]
        return part if groups is None else part[:, groups]

    for start in range(0, len(out), step):
        chunk = out[start : start + step]
        chunk[:] = rows(start, start + len(chunk))
        if zeros is not None:
            chunk -= spread(zeros, start)
        chunk *= spread(scales, start)
    return out
