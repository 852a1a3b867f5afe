"""Reference attention over block tables, for a ragged batch, with a fixed order of additions.

Keys are cut into splits of a fixed number of tokens, counted from position 0. Each split's softmax numerator and sum
are computed by matrix products of one fixed inner length, and splits are added in order; the row maximum, which is
exact in any order, is taken over all splits first. So a query's bits depend on its own keys alone: wholly masked
splits and padding add exact zeros. (The idea of fixed split points is that of batch-invariant FlashDecoding.)

Queries are cut into tiles of a few fixed lengths; tiles of one length are computed together, as (tile, split) pairs,
ordered by split, tiles with most splits first: those that have a j-th split are then the first n_j tiles. With a
window, a tile's splits begin with the one that holds the first key its first row sees.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from tenuto.device.int8 import quantised_queries, quantised_shares
from tenuto.device.kv_pool import ReferenceLayerKV
from tenuto.device.protocol import AttentionSpec
from tenuto.device.ragged import RaggedBatch

SPLIT_TOKENS = 256
_MIN_PRODUCT_ROWS = 8  # below this, BLAS takes other paths for the same row
_MAX_SCORES = 1 << 24  # float32 elements computed at once: 64 MiB


@dataclass(frozen=True)
class _Tile:
    sequence: int
    first_row: int
    num_rows: int
    position: int  # of the first row
    first_key: int  # position of the first key that the first row sees

    @property
    def kv_len(self) -> int:
        return self.position + self.num_rows

    def first_split(self, split: int) -> int:
        return self.first_key // split

    def num_splits(self, split: int) -> int:
        return -(-self.kv_len // split) - self.first_split(split)


@dataclass(frozen=True)
class TileGroup:
    """n tiles of c queries and their P (tile, split) pairs. Index tensors are int64."""

    query_rows: Tensor  # [n * c], rows of [T]; the last one repeated where a tile is short
    real: Tensor  # which of [n * c] are not repeats
    real_rows: Tensor  # their rows of [T]
    pair_tiles: Tensor  # [P]
    pair_blocks: Tensor  # [P * blocks per split]
    masked: Tensor  # bool [P, c, 1, split]
    split_ends: tuple[int, ...]  # pairs of split j are split_ends[j] to [j + 1]
    num_tiles: int
    tile_rows: int  # c


def tile_lengths(group_size: int) -> tuple[int, int, int]:
    """Query lengths of tiles: single tokens (padded so that products have enough rows), short and long chunks."""
    return -(-_MIN_PRODUCT_ROWS // group_size), 32, 128


def plan(batch: RaggedBatch, spec: AttentionSpec, block_size: int) -> list[TileGroup]:
    """Cut a batch into tile groups; done once per step and shared by all layers of one spec."""
    lengths = tile_lengths(spec.group_size)
    tiles: dict[int, list[_Tile]] = {length: [] for length in lengths}
    for sequence, (start, end) in enumerate(pairwise(batch.query_starts)):
        position = batch.kv_lens[sequence] - (end - start)
        assert position >= 0 and end > start, "a sequence without queries, or more queries than KV"
        at = start
        while at < end:
            length = _tile_length(end - at, lengths)
            first = position + at - start
            first_key = 0 if spec.window is None else max(0, first - spec.window + 1)
            tiles[length].append(_Tile(sequence, at, min(length, end - at), first, first_key))
            at += length
    tables = batch.block_tables.numpy()
    split = _split_blocks(block_size) * block_size
    groups = []
    for length, members in tiles.items():
        longest_first = sorted(members, key=lambda tile: -tile.num_splits(split))
        for some in _slices(longest_first, length * spec.num_heads, split):
            groups.append(_group(some, length, tables, spec.window, block_size))
    return groups


def _tile_length(num_left: int, lengths: tuple[int, int, int]) -> int:
    single, short, long = lengths
    if num_left <= single:
        return single
    return short if num_left <= long // 2 else long


def _split_blocks(block_size: int) -> int:
    return max(1, SPLIT_TOKENS // block_size)


def _slices(tiles: list[_Tile], rows_per_tile: int, split: int) -> list[list[_Tile]]:
    """Bound the memory of one group's scores; a single tile is never cut."""
    slices: list[list[_Tile]] = []
    room = 0
    for tile in tiles:
        scores = tile.num_splits(split) * rows_per_tile * split
        if scores > room:
            slices.append([])
            room = _MAX_SCORES
        slices[-1].append(tile)
        room -= scores
    return slices


def _group(tiles: list[_Tile], length: int, tables: np.ndarray, window: int | None, block_size: int) -> TileGroup:
    first = np.array([tile.first_row for tile in tiles])[:, None]
    count = np.array([tile.num_rows for tile in tiles])[:, None]
    position = np.array([tile.position for tile in tiles])[:, None]
    steps = np.arange(length)[None, :]
    inside = np.minimum(steps, count - 1)
    query_rows = (first + inside).reshape(-1)
    real = np.flatnonzero((steps < count).reshape(-1))

    blocks = _split_blocks(block_size)
    split = blocks * block_size
    num_splits = np.array([tile.num_splits(split) for tile in tiles])
    per_split = [int((num_splits > j).sum()) for j in range(int(num_splits[0]))]
    pair_tiles = np.concatenate([np.arange(n) for n in per_split])
    first_splits = np.array([tile.first_split(split) for tile in tiles])
    pair_splits = np.repeat(np.arange(len(per_split)), per_split) + first_splits[pair_tiles]
    columns = pair_splits[:, None] * blocks + np.arange(blocks)[None, :]
    # Past the end, read the sequence's own last block again: masked, and never another sequence's memory.
    last = np.array([(tile.kv_len - 1) // block_size for tile in tiles])[pair_tiles]
    sequences = np.array([tile.sequence for tile in tiles])[pair_tiles]
    pair_blocks = tables[sequences[:, None], np.minimum(columns, last[:, None])]

    keys = (pair_splits[:, None] * split + np.arange(split)[None, :])[:, None, None, :]
    queries = (position + inside)[pair_tiles][:, :, None, None]
    masked = keys > queries
    if window is not None:
        masked |= keys <= queries - window
    return TileGroup(
        query_rows=torch.from_numpy(query_rows),
        real=torch.from_numpy(real),
        real_rows=torch.from_numpy(query_rows[real]),
        pair_tiles=torch.from_numpy(pair_tiles),
        pair_blocks=torch.from_numpy(pair_blocks.reshape(-1)),
        masked=torch.from_numpy(masked),
        split_ends=(0, *np.cumsum(per_split).tolist()),
        num_tiles=len(tiles),
        tile_rows=length,
    )


def attend(q: Tensor, layer: ReferenceLayerKV, groups: list[TileGroup]) -> Tensor:
    """Attention of all tiles: q [T, H, D] -> [T, H * D] in q's dtype; scores and sums are float32."""
    out = torch.empty_like(q)
    for group in groups:
        result = _attend_group(q, layer, group)
        out.index_copy_(0, group.real_rows, result.index_select(0, group.real).to(out.dtype))
    return out.flatten(1)


def _attend_group(q: Tensor, layer: ReferenceLayerKV, group: TileGroup) -> Tensor:
    """One group: [n * c, H, D] float32."""
    spec = layer.spec
    heads, share, size = spec.num_kv_heads, spec.group_size, spec.head_dim
    num_tiles, num_pairs = group.num_tiles, group.pair_tiles.shape[0]
    rows = group.tile_rows * share  # of one tile and KV head
    tiles = q.index_select(0, group.query_rows).float().mul_(spec.score_scale)
    if layer.value_scales is not None:
        tiles = quantised_queries(tiles)
    tiles = tiles.view(num_tiles, group.tile_rows, heads, share, size).permute(2, 0, 1, 3, 4)
    tiles = tiles.reshape(heads, num_tiles, rows, size)

    queries = tiles.index_select(1, group.pair_tiles).view(heads * num_pairs, rows, size)
    keys = _gather(layer.keys, group.pair_blocks).view(heads * num_pairs, -1, size)
    scores = torch.bmm(queries, keys.transpose(1, 2)).view(heads, num_pairs, group.tile_rows, share, -1)
    scores.masked_fill_(group.masked, float("-inf"))
    scores = scores.view(heads, num_pairs, rows, -1)

    highest = scores.amax(-1)
    maximum = highest[:, :num_tiles].clone()
    for start, end in pairwise(group.split_ends[1:]):
        part = maximum[:, : end - start]
        torch.maximum(part, highest[:, start:end], out=part)
    scores.sub_(maximum.index_select(1, group.pair_tiles).unsqueeze(-1)).exp_()

    sums = scores.sum(-1, keepdim=True)
    values = _gather(layer.values, group.pair_blocks).view(heads * num_pairs, -1, size)
    if layer.value_scales is not None:
        scales = _gather(layer.value_scales, group.pair_blocks).view(heads, num_pairs, 1, -1)
        scores = quantised_shares(scores * scales)
        scales = scales.view(heads * num_pairs, -1, 1)
        values = torch.where(scales > 0, values / scales, 0).round_()
    weighted = torch.bmm(scores.view(heads * num_pairs, rows, -1), values).view(heads, num_pairs, rows, size)
    total, result = sums[:, :num_tiles].clone(), weighted[:, :num_tiles].clone()
    for start, end in pairwise(group.split_ends[1:]):
        total[:, : end - start] += sums[:, start:end]
        result[:, : end - start] += weighted[:, start:end]
    result /= total
    result = result.view(heads, num_tiles, group.tile_rows, share, size).permute(1, 2, 0, 3, 4)
    return result.reshape(num_tiles * group.tile_rows, heads * share, size)


def _gather(stored: Tensor, blocks: Tensor) -> Tensor:
    """Blocks of every head, as stored, in float32: [G, len(blocks), block_size * D]."""
    heads, num_blocks = stored.shape[:2]
    flat = stored.view(heads * num_blocks, -1)
    index = (torch.arange(heads).unsqueeze(1) * num_blocks + blocks).view(-1)
    return flat.index_select(0, index).float()


def probe_products(spec: AttentionSpec, split: int) -> bool:
    """Whether this machine's batched products give a row the same bits in every tile length."""
    generator = torch.Generator().manual_seed(11)
    lengths = [length * spec.group_size for length in tile_lengths(spec.group_size)]
    queries = torch.randn(3, lengths[-1], spec.head_dim, generator=generator)
    keys = torch.randn(3, split, spec.head_dim, generator=generator)
    scores = torch.bmm(queries, keys.transpose(1, 2))
    weights = scores.softmax(-1)
    values = torch.bmm(weights, keys)
    for rows in lengths[:-1]:
        for count in (1, 3):
            some, first = slice(0, count), slice(lengths[-1] - rows, lengths[-1])
            short = torch.bmm(queries[some, first].contiguous(), keys[some].transpose(1, 2))
            if not torch.equal(short, scores[some, first]):
                return False
            if not torch.equal(torch.bmm(weights[some, first].contiguous(), keys[some]), values[some, first]):
                return False
    return True
