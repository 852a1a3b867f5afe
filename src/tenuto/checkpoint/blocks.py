"""What the decoders of stored blocks share: bit fields, half-precision scales, the table of the non-linear types."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = npt.NDArray[np.uint8]
Floats: TypeAlias = npt.NDArray[np.float32]

# What the 4 bits of an element of IQ4_NL and IQ4_XS stand for (ggml's kvalues_iq4nl).
IQ4_VALUES = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113],
    dtype=np.float32,
)


def scale(blocks: Bytes, at: int) -> Floats:
    """The half-precision number at byte `at` of every block: [blocks, 1]."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def halves(packed: Bytes) -> Bytes:
    """[n, k] -> [n, 2 * k]: the low halves of a row's bytes, then the high ones."""
    return np.concatenate([packed & 15, packed >> 4], axis=1)


def bit_fields(packed: Bytes, bits: int) -> Bytes:
    """[n, runs, k] -> [n, runs, 8 / bits, k]: the lowest fields of a run's bytes, then the next ones."""
    num_fields = 8 // bits
    out = np.empty((*packed.shape[:2], num_fields, packed.shape[2]), np.uint8)
    for index in range(num_fields):
        field = out[:, :, index]
        np.right_shift(packed, bits * index, out=field)
        if index < num_fields - 1:
            field &= (1 << bits) - 1
    return out


def scaled(out: Floats, values: npt.NDArray[Any], scales: Floats) -> None:
    """Whole numbers [n, groups, k] times [n, groups], or [n, k] times [n, 1], into `out`: [n, elements]."""
    grouped = out.reshape(values.shape)
    grouped[:] = values
    grouped *= scales if values.ndim == 2 else scales[:, :, None]
