"""Rotary positions on the reference device (Su et al., "RoFormer", 2021), pairs (j, j + D / 2)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_CHUNK = 4096  # positions computed at once: always as many, so that an angle's bits do not depend on what is asked


@dataclass(frozen=True)
class Angles:
    """Of each token of a step, ready to multiply its heads."""

    cos: Tensor  # float32 [T, 1, D / 2]
    sin: Tensor


class ReferenceRotaryTable:
    """Cosine and sine by position, computed as far as positions are used: contexts are long, and mostly unused."""

    def __init__(self, inverse_frequencies: Tensor, scale: float, max_positions: int) -> None:
        self.max_positions = max_positions
        self._frequencies = inverse_frequencies
        self._scale = scale
        self._rows = self._chunk(0)  # float32 [positions, 2, D / 2]

    def at(self, positions: Tensor) -> Angles:
        """int64 [T] -> the angles of those positions."""
        rows = self.rows(positions).unsqueeze(1)
        return Angles(rows[:, :, 0], rows[:, :, 1])

    def rows(self, positions: Tensor) -> Tensor:
        """int64 [T] -> float32 [T, 2, D / 2]: cosine, then sine."""
        highest = int(positions.max())
        assert highest < self.max_positions, "a position beyond the model's context"
        while highest >= self._rows.shape[0]:
            self._rows = torch.cat([self._rows, self._chunk(self._rows.shape[0])])
        return self._rows.index_select(0, positions)

    def _chunk(self, first: int) -> Tensor:
        angles = torch.arange(first, first + _CHUNK, dtype=torch.float32)[:, None] * self._frequencies
        return torch.stack([angles.cos(), angles.sin()], dim=1).mul_(self._scale)


def rotate(x: Tensor, angles: Angles) -> Tensor:
    """Rotate the pairs of [T, heads, D] by each token's angles, in float32."""
    first, second = x.float().chunk(2, dim=-1)
    cos, sin = angles.cos, angles.sin
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)
