"""Small whole numbers packed into 32-bit words, and the groups that share a scale."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tenuto.checkpoint.blocks import Bytes
from tenuto.checkpoint.weight_file import StoredTensor
from tenuto.errors import ModelFileError

Words: TypeAlias = npt.NDArray[np.integer]
Indices: TypeAlias = npt.NDArray[np.int64]


def num_words(count: int, bits: int) -> int:
    """Words that hold `count` fields, packed without gaps from the lowest bit of the first word."""
    return -(-count * bits // 32)


def fields_down(words: Words, bits: int, start: int, stop: int) -> Bytes:
    """Fields `start` to `stop` of every column of words: [n, k] -> [stop - start, k]. A field may cross two words."""
    words = words.view(np.uint32)
    at = np.arange(start, stop, dtype=np.int64) * bits
    word, shift = at // 32, (at % 32).astype(np.uint32)
    fields = words[word] >> shift[:, None]
    crossing = np.flatnonzero(shift + bits > 32)
    fields[crossing] |= words[word[crossing] + 1] << (32 - shift[crossing])[:, None]
    return (fields & ((1 << bits) - 1)).astype(np.uint8)


def fields_along(words: Words, bits: int) -> Bytes:
    """All fields of every row of words: [n, k] -> [n, k * 32 / bits]. `bits` divides 8."""
    packed = np.ascontiguousarray(words).astype("<i4", copy=False).view(np.uint8)
    if bits == 8:
        return packed
    out = np.empty((*packed.shape, 8 // bits), np.uint8)
    for index in range(8 // bits):
        np.right_shift(packed, bits * index, out=out[:, :, index])
    out &= (1 << bits) - 1
    return out.reshape(len(words), -1)


def group_indices(tensor: StoredTensor, num_groups: int) -> Indices:
    """Which group each input belongs to, as a file stores it: int32 [in]. Raises ModelFileError if one is no group."""
    indices = tensor.read_whole().astype(np.int64)
    if indices.min() < 0 or indices.max() >= num_groups:
        raise ModelFileError(f"{tensor.label} names groups beyond the {num_groups} there are")
    return indices
