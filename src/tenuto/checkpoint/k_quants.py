"""The ggml types with blocks of 256 elements: Q2_K to Q6_K and IQ4_XS.

A block is cut into groups of 16 or 32 elements, each with a small whole-number scale (and, in Q2_K, Q4_K and Q5_K, a
minimum) that multiplies the block's half-precision one. Layouts as in the ggml project; the order of the arithmetic
is that of its reference, so that results are equal to the bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tenuto.checkpoint.blocks import IQ4_VALUES, Bytes, Floats, bit_fields, halves, scale, scaled


def q2_k(blocks: Bytes, out: Floats) -> None:
    """[n, 84] -> [n, 256]: 16 bytes of scale and minimum (4 bits each), 64 of elements, scale, scale of minimums."""
    small = blocks[:, :16]
    scales = scale(blocks, 80) * (small & 15).astype(np.float32)
    minimums = scale(blocks, 82) * (small >> 4).astype(np.float32)
    values = bit_fields(blocks[:, 16:80].reshape(-1, 2, 32), 2)  # 2 * 4 * 32 elements
    _scaled(out, values, scales, minimums)


def q3_k(blocks: Bytes, out: Floats) -> None:
    """[n, 110] -> [n, 256]: 32 bytes of third bits, 64 of low bits, 12 of scales (6 bits each), scale."""
    low = bit_fields(blocks[:, 32:96].reshape(-1, 2, 32), 2).reshape(-1, 256)
    high = bit_fields(blocks[:, :32].reshape(-1, 1, 32), 1).reshape(-1, 256)
    values = (low | high << 2).view(np.int8)
    values -= 4
    packed = blocks[:, 96:108]
    small = halves(packed[:, :8]) | bit_fields(packed[:, 8:].reshape(-1, 1, 4), 2).reshape(-1, 16) << 4
    _scaled(out, values, scale(blocks, 108) * (small.view(np.int8) - np.int8(32)).astype(np.float32))


def q4_k(blocks: Bytes, out: Floats) -> None:
    """[n, 144] -> [n, 256]: scale, scale of minimums, 12 bytes of both (6 bits each), 128 of elements."""
    scales, minimums = _scales_and_minimums(blocks)
    _scaled(out, bit_fields(blocks[:, 16:].reshape(-1, 4, 32), 4), scales, minimums)


def q5_k(blocks: Bytes, out: Floats) -> None:
    """[n, 176] -> [n, 256]: as Q4_K, with 32 bytes of fifth bits before the elements."""
    scales, minimums = _scales_and_minimums(blocks)
    values = bit_fields(blocks[:, 48:].reshape(-1, 4, 32), 4).reshape(-1, 256)
    values |= bit_fields(blocks[:, 16:48].reshape(-1, 1, 32), 1).reshape(-1, 256) << 4
    _scaled(out, values, scales, minimums)


def q6_k(blocks: Bytes, out: Floats) -> None:
    """[n, 210] -> [n, 256]: 128 bytes of low halves, 64 of the two bits above, 16 signed scales, scale."""
    low = bit_fields(blocks[:, :128].reshape(-1, 2, 64), 4).reshape(-1, 256)
    low |= bit_fields(blocks[:, 128:192].reshape(-1, 2, 32), 2).reshape(-1, 256) << 4
    values = low.view(np.int8)
    values -= 32
    _scaled(out, values, scale(blocks, 208) * blocks[:, 192:208].view(np.int8).astype(np.float32))


def iq4_xs(blocks: Bytes, out: Floats) -> None:
    """[n, 136] -> [n, 256]: scale, 2 bytes of high and 4 of low parts of scales (6 bits each), 128 of elements."""
    low = np.stack([blocks[:, 4:8] & 15, blocks[:, 4:8] >> 4], axis=-1).reshape(-1, 8)
    places = np.arange(0, 8, 2, dtype=np.uint8)
    high = (blocks[:, 2:4, None] >> places & 3).reshape(-1, 8)
    scales = scale(blocks, 0) * ((low | high << 4).view(np.int8) - np.int8(32)).astype(np.float32)
    _scaled(out, IQ4_VALUES[bit_fields(blocks[:, 8:].reshape(-1, 8, 16), 4)], scales)


def _scales_and_minimums(blocks: Bytes) -> tuple[Floats, Floats]:
    """Of the 8 groups of Q4_K and Q5_K: [n, 8] each.

    Of the 12 bytes, the first four hold scales 0..3, the next minimums 0..3, in 6 bits; their two upper bits are those
    of scales and minimums 4..7, whose lower four are in the halves of the last four bytes.
    """
    first, second, third = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = np.concatenate([first & 63, third & 15 | first >> 2 & 48], axis=1)
    minimums = np.concatenate([second & 63, third >> 4 | second >> 2 & 48], axis=1)
    return scale(blocks, 0) * scales.astype(np.float32), scale(blocks, 2) * minimums.astype(np.float32)


def _scaled(out: Floats, values: npt.NDArray[Any], scales: Floats, minimums: Floats | None = None) -> None:
    """Groups of elements, in any shape, times their scales, less their minimums."""
    groups = values.reshape(*scales.shape, -1)
    scaled(out, groups, scales)
    if minimums is not None:
        grouped = out.reshape(groups.shape)
        grouped -= minimums[:, :, None]
