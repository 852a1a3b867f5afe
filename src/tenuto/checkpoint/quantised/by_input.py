"""AWQ and GPTQ: matrices stored as [in, out], 32-bit words of small fields, scales and zeros for groups of inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tenuto.checkpoint.blocks import Bytes, Floats
from tenuto.checkpoint.quantised.fields import Indices, fields_along, fields_down, group_indices, num_words
from tenuto.checkpoint.quantised.scheme import Parts, QuantisedMatrix, expect_shape, float_part, whole_part
from tenuto.checkpoint.weight_file import StoredTensor
from tenuto.errors import ModelFileError

_ROWS = 256  # inputs decoded at once
_AWQ_BITS = 4
# Field i of a word of AWQ's `gemm` layout belongs to output (0, 2, 4, 6, 1, 3, 5, 7)[i] of eight: this is the inverse.
_AWQ_FIELD_OF_OUTPUT = (0, 4, 1, 5, 2, 6, 3, 7)


@dataclass(frozen=True)
class Awq:
    """AWQ (Lin et al., 2023) in AutoAWQ's `gemm` layout: qweight int32 [in, out / 8], qzeros int32 [groups, out / 8],
    scales [groups, out]; weight[o, i] = (q - zero) * scale.
    """

    group_size: int | None  # inputs; None: all of them are one group

    parts = frozenset({"qweight", "qzeros", "scales"})
    ignored = frozenset[str]()

    def holds(self, parts: Parts) -> bool:
        return "qweight" in parts

    def matrix(self, parts: Parts) -> QuantisedMatrix:
        packed, zeros = whole_part(parts, "qweight", "I32"), whole_part(parts, "qzeros", "I32")
        scales = float_part(parts, "scales")
        num_in, num_columns = _two(packed)
        num_out = 8 * num_columns
        group_size = self.group_size or num_in
        num_groups = _num_groups(packed, num_in, group_size)
        expect_shape(zeros, (num_groups, num_columns))
        expect_shape(scales, (num_groups, num_out))

        def compute() -> Floats:
            words = packed.read_whole()
            return _grouped(
                (num_out, num_in),
                lambda start, stop: _awq_fields(words[start:stop]),
                scales.read(),
                _awq_fields(zeros.read_whole()),
                np.arange(num_in) // group_size,
            )

        return QuantisedMatrix((packed, scales, zeros), (num_out, num_in), "AWQ 4-bit", compute)


def _awq_fields(words: np.ndarray) -> Bytes:
    fields = fields_along(words, _AWQ_BITS).reshape(len(words), -1, 8)
    return fields[:, :, _AWQ_FIELD_OF_OUTPUT].reshape(len(words), -1)


@dataclass(frozen=True)
class Gptq:
    """GPTQ (Frantar et al., 2022) as AutoGPTQ and GPTQModel store it: qweight int32 [in * bits / 32, out], qzeros int32
    [groups, out * bits / 32], scales [groups, out], g_idx int32 [in]; weight[o, i] = (q - zero) * scale of i's group.
    """

    bits: int  # 2, 3, 4 or 8
    group_size: int | None  # inputs; None: all of them are one group
    zeros_less_one: bool  # the first format stores zeros less by one, modulo 2 ** bits; `gptq_v2` as they are

    parts = frozenset({"qweight", "qzeros", "scales", "g_idx"})
    ignored = frozenset[str]()

    def holds(self, parts: Parts) -> bool:
        return "qweight" in parts

    def matrix(self, parts: Parts) -> QuantisedMatrix:
        bits = self.bits
        packed, zeros = whole_part(parts, "qweight", "I32"), whole_part(parts, "qzeros", "I32")
        scales = float_part(parts, "scales")
        num_rows, num_out = _two(packed)
        num_in = num_rows * 32 // bits
        if num_rows * 32 % bits:
            raise ModelFileError(f"{packed.label} has {num_rows} rows of words, which {bits}-bit fields do not fill")
        group_size = self.group_size or num_in
        num_groups = _num_groups(packed, num_in, group_size)
        expect_shape(zeros, (num_groups, num_words(num_out, bits)))
        expect_shape(scales, (num_groups, num_out))
        order = whole_part(parts, "g_idx", "I32") if "g_idx" in parts and parts["g_idx"].shape != (0,) else None
        if order is not None:
            expect_shape(order, (num_in,))

        def compute() -> Floats:
            words = packed.read_whole()
            return _grouped(
                (num_out, num_in),
                lambda start, stop: fields_down(words, bits, start, stop),
                scales.read(),
                self._zeros(zeros, num_out),
                np.arange(num_in) // group_size if order is None else group_indices(order, num_groups),
            )

        stored = (packed, scales, zeros, *([] if order is None else [order]))
        return QuantisedMatrix(stored, (num_out, num_in), f"GPTQ {bits}-bit", compute)

    def _zeros(self, packed: StoredTensor, num_out: int) -> Bytes:
        """[groups, out]"""
        stored = fields_down(np.ascontiguousarray(packed.read_whole().T), self.bits, 0, num_out).T
        return (stored + np.uint8(self.zeros_less_one)) & np.uint8((1 << self.bits) - 1)


def _two(tensor: StoredTensor) -> tuple[int, int]:
    if len(tensor.shape) != 2 or 0 in tensor.shape:
        raise ModelFileError(f"{tensor.label} has shape {list(tensor.shape)}, expected a matrix")
    return tensor.shape[0], tensor.shape[1]


def _num_groups(tensor: StoredTensor, num_in: int, group_size: int) -> int:
    if num_in % group_size:
        raise ModelFileError(f"{tensor.label} has {num_in} inputs, which groups of {group_size} do not divide")
    return num_in // group_size


def _grouped(
    shape: tuple[int, int],
    fields: Callable[[int, int], Bytes],
    scales: Floats,
    zeros: Bytes,
    groups: Indices,
) -> Floats:
    """[out, in] of (field - zero) * scale; beside it, memory is needed for a few inputs' rows only.

    Args:
        fields: the fields of a range of inputs: [stop - start, out].
        scales, zeros: [groups, out].
        groups: of each input.
    """
    out = np.empty(shape, np.float32)
    for start in range(0, shape[1], _ROWS):
        stop = min(start + _ROWS, shape[1])
        rows = fields(start, stop).astype(np.float32)
        rows -= zeros[groups[start:stop]]
        rows *= scales[groups[start:stop]]
        out[:, start:stop] = rows.T
    return out
