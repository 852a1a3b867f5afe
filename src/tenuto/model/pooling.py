"""From the hidden states of a text's tokens to one vector."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from tenuto.checkpoint.encoders.config import PoolingName


def pool(states: Tensor, starts: Sequence[int], pooling: PoolingName) -> Tensor:
    """Pool each text by itself; its bits depend on its own rows alone.

    Args:
        states: float32 [T, hidden].
        starts: cumulative: text s has rows starts[s] to [s + 1].

    Returns:
        float32 [S, hidden].
    """
    match pooling:
        case "first":
            return states.index_select(0, torch.tensor(starts[:-1]))
        case "last":
            return states.index_select(0, torch.tensor(starts[1:]) - 1)
        case "mean":
            # Summed in float64: a mean over thousands of tokens is as exact as one over a few.
            return torch.stack([states[start:end].double().mean(0).float() for start, end in pairwise(starts)])
