"""From stored bytes to float32: a table of the stored types, with the decoder of each.

Block layouts as in the ggml project. In the types of this file a block holds 32 elements; 4-bit types keep elements
0..15 in the low halves of their bytes and 16..31 in the high halves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from io import BufferedIOBase

import numpy as np

from tenuto.checkpoint import k_quants
from tenuto.checkpoint.blocks import IQ4_VALUES, Bytes, Floats, halves, scale, scaled

_CHUNK_ELEMENTS = 1 << 17  # decoded at once: what a decoder needs beside the result stays in the cache


@dataclass(frozen=True)
class StoredType:
    """How elements are stored."""

    name: str
    block_elements: int
    block_bytes: int
    decode: Callable[[Bytes, Floats], None]  # [n, block_bytes], and where to write them: [n, block_elements]

    def num_bytes(self, shape: tuple[int, ...]) -> int:
        """Of a tensor whose rows fill whole blocks."""
        return math.prod(shape) // self.block_elements * self.block_bytes


def _f32(blocks: Bytes, out: Floats) -> None:
    out[:] = blocks.view("<f4")


def _f16(blocks: Bytes, out: Floats) -> None:
    out[:] = blocks.view("<f2")


def _bf16(blocks: Bytes, out: Floats) -> None:
    np.left_shift(blocks.view("<u2"), 16, out=out.view(np.uint32), dtype=np.uint32)


def _q4_0(blocks: Bytes, out: Floats) -> None:
    scaled(out, halves(blocks[:, 2:]).view(np.int8) - np.int8(8), scale(blocks, 0))


def _q4_1(blocks: Bytes, out: Floats) -> None:
    scaled(out, halves(blocks[:, 4:]), scale(blocks, 0))
    out += scale(blocks, 2)


def _q5_0(blocks: Bytes, out: Floats) -> None:
    values = halves(blocks[:, 6:]) | _fifth_bits(blocks[:, 2:6])
    scaled(out, values.view(np.int8) - np.int8(16), scale(blocks, 0))


def _q5_1(blocks: Bytes, out: Floats) -> None:
    scaled(out, halves(blocks[:, 8:]) | _fifth_bits(blocks[:, 4:8]), scale(blocks, 0))
    out += scale(blocks, 2)


def _q8_0(blocks: Bytes, out: Floats) -> None:
    scaled(out, blocks[:, 2:].view(np.int8), scale(blocks, 0))


def _iq4_nl(blocks: Bytes, out: Floats) -> None:
    scaled(out, IQ4_VALUES[halves(blocks[:, 2:])], scale(blocks, 0))


def _fifth_bits(packed: Bytes) -> Bytes:
    """[n, 4] -> [n, 32]: bit j of the four bytes, taken as one number, belongs to element j."""
    return np.unpackbits(packed, axis=1, bitorder="little") << np.uint8(4)


STORED_TYPES = {
    stored.name: stored
    for stored in (
        StoredType("F32", 1, 4, _f32),
        StoredType("F16", 1, 2, _f16),
        StoredType("BF16", 1, 2, _bf16),
        StoredType("Q4_0", 32, 18, _q4_0),
        StoredType("Q4_1", 32, 20, _q4_1),
        StoredType("Q5_0", 32, 22, _q5_0),
        StoredType("Q5_1", 32, 24, _q5_1),
        StoredType("Q8_0", 32, 34, _q8_0),
        StoredType("IQ4_NL", 32, 18, _iq4_nl),
        StoredType("Q2_K", 256, 84, k_quants.q2_k),
        StoredType("Q3_K", 256, 110, k_quants.q3_k),
        StoredType("Q4_K", 256, 144, k_quants.q4_k),
        StoredType("Q5_K", 256, 176, k_quants.q5_k),
        StoredType("Q6_K", 256, 210, k_quants.q6_k),
        StoredType("IQ4_XS", 256, 136, k_quants.iq4_xs),
    )
}


def read_elements(file: BufferedIOBase, offset: int, type_name: str, shape: tuple[int, ...]) -> Floats:
    """Decode a tensor from its place in a file into a new float32 array of `shape`, whose rows fill whole blocks.

    Beside the result, memory is needed for one chunk only.

    Raises:
        EOFError: the file ends before the tensor does.
        FloatingPointError: an element is infinite or no number.
    """
    stored = STORED_TYPES[type_name]
    out = np.empty((math.prod(shape) // stored.block_elements, stored.block_elements), np.float32)
    step = max(1, _CHUNK_ELEMENTS // stored.block_elements)
    buffer = np.empty((min(step, len(out)), stored.block_bytes), np.uint8)
    file.seek(offset)
    total = np.float32(0)
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, len(out), step):
            chunk, blocks = out[start : start + step], buffer[: len(out) - start]
            if file.readinto(blocks.data) != blocks.nbytes:
                raise EOFError
            stored.decode(blocks, chunk)
            total += (
                chunk.sum()
            )  # tells of any element that is not finite, at a fraction of the cost of looking at each
    if not np.isfinite(total) and not np.isfinite(out).all():
        raise FloatingPointError
    return out.reshape(shape)
