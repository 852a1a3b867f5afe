"""Random blocks of every ggml type: any bits, but half-precision scales of the size that models have."""

from __future__ import annotations

import numpy as np

from tenuto.checkpoint.quant_types import STORED_TYPES

# Where the half-precision numbers of a block lie.
_SCALES_AT = {
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "IQ4_NL": (0,), "Q2_K": (80, 82),
    "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_XS": (0,),
}  # fmt: skip


def random_blocks(kind: str, count: int, seed: int = 0, size: float = 0.01) -> np.ndarray:
    """uint8 [count, bytes per block]; scales are drawn around zero with deviation `size`, elements too for floats."""
    draw = np.random.default_rng(seed)
    if kind in ("F32", "F16", "BF16"):
        values = (draw.standard_normal((count, 1)) * size).astype(np.float32)
        if kind == "BF16":
            return (values.view(np.uint32) >> 16).astype("<u2").view(np.uint8)
        return values.astype({"F32": "<f4", "F16": "<f2"}[kind]).view(np.uint8)
    blocks = draw.integers(0, 256, (count, STORED_TYPES[kind].block_bytes), dtype=np.uint8)
    for at in _SCALES_AT[kind]:
        blocks[:, at : at + 2] = (draw.standard_normal((count, 1)) * size).astype("<f2").view(np.uint8)
    return blocks
