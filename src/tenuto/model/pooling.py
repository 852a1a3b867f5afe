"""From the hidden states of a text's tokens to one vector."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from tenuto.checkpoint.encoders.config import PoolingName


def pool(states: Tensor, starts: Sequence[int], poolings: Sequence[PoolingName]) -> Tensor:
    """Pool each text by itself; its bits depend on its own rows alone.

    Args:
        states: float32 [T, hidden].
        starts: cumulative: text s has rows starts[s] to [s + 1].
        poolings: of each text.

    Returns:
        float32 [S, hidden].
    """
    texts = zip(pairwise(starts), poolings, strict=True)
    return torch.stack([_pool_text(states[start:end], pooling) for (start, end), pooling in texts])


def _pool_text(states: Tensor, pooling: PoolingName) -> Tensor:
    match pooling:
        case "first":
            return states[0]
        case "last":
            return states[-1]
        case "mean":
            # Summed in float64: a mean over thousands of tokens is as exact as one over a few.
            return states.double().mean(0).float()
