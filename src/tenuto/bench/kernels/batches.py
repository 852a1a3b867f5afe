"""Made-up steps, KV and rows: what kernels are timed on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from tenuto.device.protocol import Device, HeadTransform, KVPool
from tenuto.device.ragged import RaggedBatch
from tenuto.model import Decoder

_CHUNK = 512


def made_batch(queries: Sequence[tuple[int, int]], block_size: int, num_shared: int = 0) -> RaggedBatch:
    """
    Args:
        queries: (tokens before the step, tokens of the step) of each sequence, which wants its last token's logits.
        num_shared: blocks at the beginning that all sequences have in common.
    """
    widths = [-(-(start + length) // block_size) for start, length in queries]
    positions, slots, starts, tables, next_block = [], [], [0], [], num_shared
    for (start, length), width in zip(queries, widths, strict=True):
        assert start >= num_shared * block_size, "what is shared is never written"
        table = [*range(num_shared), *range(next_block, next_block + width - num_shared)]
        next_block += width - num_shared
        at = torch.arange(start, start + length)
        positions.append(at)
        slots.append(torch.tensor(table)[at // block_size] * block_size + at % block_size)
        starts.append(starts[-1] + length)
        tables.append([*table, *[0] * (max(widths) - width)])
    return RaggedBatch(
        token_ids=torch.arange(starts[-1]) % 7 + 1,  # any small ids: no kernel's time depends on them
        positions=torch.cat(positions),
        slots=torch.cat(slots),
        query_starts=tuple(starts),
        kv_lens=tuple(start + length for start, length in queries),
        block_tables=torch.tensor(tables),
        logit_rows=torch.tensor(starts[1:]) - 1,
    )


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
