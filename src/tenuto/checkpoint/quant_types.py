"""From stored bytes to float32, one function per stored type.

Block layouts as in the ggml project: a block holds 32 elements; 4-bit types keep elements 0..15 in the low
halves of their bytes and 16..31 in the high halves.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def _f32(raw: Bytes) -> Floats:
    return raw.view("<f4").astype(np.float32)


def _f16(raw: Bytes) -> Floats:
    return raw.view("<f2").astype(np.float32)


def _bf16(raw: Bytes) -> Floats:
    return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)


def _scale(blocks: Bytes, at: int) -> Floats:
    """The half-precision number at byte `at` of every block: [blocks, 1]."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _halves(packed: Bytes) -> Floats:
    return np.concatenate([packed & 15, packed >> 4], axis=1).astype(np.float32)


def _q4_0(raw: Bytes) -> Floats:
    blocks = raw.reshape(-1, 18)
    return ((_halves(blocks[:, 2:]) - np.float32(8)) * _scale(blocks, 0)).reshape(-1)


def _q4_1(raw: Bytes) -> Floats:
    blocks = raw.reshape(-1, 20)
    out = _halves(blocks[:, 4:])
    out *= _scale(blocks, 0)
    out += _scale(blocks, 2)
    return out.reshape(-1)


def _q8_0(raw: Bytes) -> Floats:
    blocks = raw.reshape(-1, 34)
    out = blocks[:, 2:].view(np.int8).astype(np.float32)
    out *= _scale(blocks, 0)
    return out.reshape(-1)


_DEQUANTISE: dict[str, Callable[[Bytes], Floats]] = {
    "F32": _f32,
    "F16": _f16,
    "BF16": _bf16,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q8_0": _q8_0,
}


def dequantise(raw: Bytes, type_name: str, shape: tuple[int, ...]) -> Floats:
    """Decode the stored bytes of one tensor into a new float32 array of `shape`."""
    return _DEQUANTISE[type_name](raw).reshape(shape)
