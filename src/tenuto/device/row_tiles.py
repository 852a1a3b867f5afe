"""Matrix products whose rows do not depend on how many rows there are.

A BLAS picks its kernel, and with it the order of additions, by the number of rows; so the same token gives other
bits alone than in a batch. Here a product is computed in tiles of a few fixed row counts, and only those counts are
used for which a probe at load shows the same bits as the base tile. On the CPUs we have seen, one row takes another
path than two or more, and middling counts split the inner sum across threads; the rest agree, so little speed is lost.

The probe is evidence, not proof: it compares random rows, at several offsets, under the thread count at load.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

BASE_ROWS = 16
_CANDIDATES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_MAX_PROBE_ELEMENTS = 1 << 22  # of output: keeps the probe of a vocabulary-sized matrix short
_OFFSETS = (0, 3)  # the same row in two places of the tile


@dataclass(frozen=True)
class RowTiles:
    """Row counts that gave equal bits, ascending; `exact` if the base tile itself passed."""

    sizes: tuple[int, ...]
    exact: bool

    def cut(self, num_rows: int) -> list[tuple[int, int, int]]:
        """Cover `num_rows` by (first row, rows, tile size); only the last tile may be padded."""
        tiles, at = [], 0
        while at < num_rows:
            left = num_rows - at
            # Padding a short rest up beats another pass over the weights.
            fitting = [size for size in self.sizes if size <= left] if left >= BASE_ROWS else []
            size = fitting[-1] if fitting else next(size for size in self.sizes if size >= left)
            tiles.append((at, min(left, size), size))
            at += size
        return tiles


def probe(product: Callable[[Tensor], Tensor], in_features: int, out_features: int, dtype: torch.dtype) -> RowTiles:
    """Find the row counts under which `product` ([m, in] -> [m, out]) gives each row the base tile's bits."""
    limit = max(BASE_ROWS, min(_CANDIDATES[-1], _MAX_PROBE_ELEMENTS // out_features))
    num_rows = limit + BASE_ROWS
    rows = torch.randn(num_rows, in_features, generator=torch.Generator().manual_seed(7)).to(dtype)
    base = torch.cat([product(rows[at : at + BASE_ROWS]) for at in range(0, num_rows - BASE_ROWS + 1, BASE_ROWS)])

    def agrees(size: int) -> bool:
        ends = [(at, at + size) for at in _OFFSETS if at + size <= len(base)]
        return all(torch.equal(product(rows[a:b].clone()), base[a:b]) for a, b in ends)

    exact = agrees(BASE_ROWS)
    sizes = {size for size in _CANDIDATES if size <= limit and agrees(size)} if exact else set(_CANDIDATES)
    return RowTiles(tuple(sorted(sizes | {BASE_ROWS})), exact)


def tiled(product: Callable[[Tensor], Tensor], x: Tensor, out_features: int, tiles: RowTiles) -> Tensor:
    """`product(x)` computed tile by tile: [T, in] -> [T, out]."""
    pieces = tiles.cut(x.shape[0])
    if len(pieces) == 1 and pieces[0][1] == pieces[0][2]:
        return product(x)
    out = x.new_empty(x.shape[0], out_features)
    for at, count, size in pieces:
        rows = x[at : at + count]
        if count < size:
            padded = x.new_zeros(size, x.shape[1])
            padded[:count] = rows
            rows = padded
        out[at : at + count] = product(rows)[:count]
    return out
