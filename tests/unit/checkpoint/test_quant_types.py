"""Every stored type is decoded to exactly what the gguf package, the format's own, makes of the same bytes."""

from __future__ import annotations

import io
import tracemalloc

import gguf
import numpy as np
import pytest

from stored_blocks import random_blocks
from tenuto.checkpoint.quant_types import STORED_TYPES, read_elements

QUANTISABLE = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")


def decoded(raw: np.ndarray, kind: str, shape: tuple[int, ...], before: bytes = b"") -> np.ndarray:
    return read_elements(io.BytesIO(before + raw.tobytes()), len(before), kind, shape)


def reference(raw: np.ndarray, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    rows = np.ascontiguousarray(raw).reshape(shape[0], -1)
    return gguf.quants.dequantize(rows, gguf.GGMLQuantizationType[kind]).reshape(shape)


def equal_bits(one: np.ndarray, other: np.ndarray) -> bool:
    return np.array_equal(one.view(np.uint32), np.ascontiguousarray(other).view(np.uint32))


@pytest.mark.parametrize("kind", STORED_TYPES)
@pytest.mark.parametrize("seed", range(3))
def test_random_blocks_are_decoded_to_the_bit(kind: str, seed: int) -> None:
    per_row = 3 * STORED_TYPES[kind].block_elements
    raw = random_blocks(kind, 50 * 3, seed)
    assert equal_bits(decoded(raw, kind, (50, per_row), before=b"x"), reference(raw, kind, (50, per_row)))


@pytest.mark.parametrize("kind", QUANTISABLE)
def test_quantised_weights_are_decoded_to_the_bit(kind: str) -> None:
    rows = np.random.default_rng(3).standard_normal((48, 96)).astype(np.float32)
    raw = gguf.quants.quantize(rows, gguf.GGMLQuantizationType[kind])
    assert equal_bits(decoded(raw, kind, rows.shape), reference(raw, kind, rows.shape))


@pytest.mark.parametrize("kind", STORED_TYPES)
def test_block_sizes_are_the_formats_own(kind: str) -> None:
    stored = STORED_TYPES[kind]
    sizes = gguf.constants.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    assert (stored.block_elements, stored.block_bytes) == sizes


@pytest.mark.parametrize("kind", STORED_TYPES)
def test_chunks_do_not_show(kind: str) -> None:
    """A tensor of several chunks, the last of them short, and in memory one chunk beside the result."""
    stored = STORED_TYPES[kind]
    num_blocks = 1_000_000 // stored.block_elements
    raw = random_blocks(kind, num_blocks, seed=7)
    data, shape = io.BytesIO(raw.tobytes()), (num_blocks, stored.block_elements)
    tracemalloc.start()
    values = read_elements(data, 0, kind, shape)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert equal_bits(values, reference(raw, kind, shape))
    assert peak < 1.8 * values.nbytes


@pytest.mark.parametrize("kind", STORED_TYPES)
def test_a_scale_that_is_no_number_is_told(kind: str) -> None:
    raw = random_blocks(kind, 64, seed=1)
    raw[5] = 0xFF
    with pytest.raises(FloatingPointError):
        decoded(raw, kind, (64, STORED_TYPES[kind].block_elements))


def test_large_finite_values_are_let_through() -> None:
    values = np.full((4, 32), 3e38, np.float32)
    np.testing.assert_array_equal(decoded(values, "F32", values.shape), values)


@pytest.mark.parametrize("kind", STORED_TYPES)
def test_a_file_that_ends_early_is_told(kind: str) -> None:
    raw = random_blocks(kind, 8, seed=2)
    with pytest.raises(EOFError):
        read_elements(io.BytesIO(raw.tobytes()[:-1]), 0, kind, (8, STORED_TYPES[kind].block_elements))
