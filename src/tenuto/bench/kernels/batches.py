"""Made-up steps, KV and rows: what kernels are timed on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from tenuto.device.protocol import Device, HeadTransform, KVPool
from tenuto.device.ragged import Part, RaggedBatch
from tenuto.model import Decoder

_CHUNK = 512


def made_batch(queries: Sequence[tuple[int, int]], block_size: int, num_shared: int = 0) -> RaggedBatch:
    """
    Args:
        queries: (tokens before the step, tokens of the step) of each sequence, which wants its last token's logits.
        num_shared: blocks at the beginning that all sequences have in common.
    """
    parts, next_block, num_tokens = [], num_shared, 0
    for start, length in queries:
        assert start >= num_shared * block_size, "what is shared is never written"
        num_own = -(-(start + length) // block_size) - num_shared
        table = [*range(num_shared), *range(next_block, next_block + num_own)]
        # Any small ids: no kernel's time depends on them.
        parts.append(Part([at % 7 + 1 for at in range(num_tokens, num_tokens + length)], start, table))
        next_block += num_own
        num_tokens += length
    return RaggedBatch.of(parts, block_size)


def blocks_of(queries: Sequence[tuple[int, int]], block_size: int) -> int:
    """Blocks that `made_batch` uses if nothing is shared."""
    return sum(-(-(start + length) // block_size) for start, length in queries)


def fill(decoder: Decoder, kv: KVPool, num_layers: int) -> None:
    """Write keys and values everywhere, as prefills would: memory that was never written may not be there at all."""
    device, config = decoder.device, decoder.config
    width = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim
    chunk, total = min(_CHUNK, config.max_model_tokens), kv.num_blocks * kv.block_size
    for first in range(0, total, chunk):
        count = min(chunk, total - first)
        batch = made_batch([(0, count)], device.block_size)
        step = device.begin_step(replace(batch, slots=batch.slots + first), decoder.rotary, kv)
        qkv = made_rows(device, count, width)
        for index in range(num_layers):
            device.rotate_and_write(qkv, kv.layer(index), step, HeadTransform())


def made_rows(device: Device, rows: int, features: int) -> Tensor:
    """Random activations [rows, features]."""
    return device.upload(np.random.default_rng(1).standard_normal((rows, features), np.float32))
