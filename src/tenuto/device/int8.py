"""The definition of INT8 precision: what values the integers stand for.

Weights and activations are taken in groups of 64 inputs, each with its own scale; K and V by token and head:

    weights:      scale = max |w| / 127, rounded to half precision;  q = round(w / scale), at most 127 in magnitude
    activations:  scale = max |x| / 127 in float32;                  q = round(x * (127 / max |x|))
    K and V:      scale = max |x| / 127, rounded up to bfloat16;     q = round(x / scale)

Rounding is half to even. Products of integers are exact; a group's product is multiplied by both scales in float32.
Here the values that the integers stand for are made, so that any float product defines the result.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

GROUP = 64


def quantised_weights(matrix: Tensor) -> Tensor:
    """float32 [out, in] -> the float32 values that its INT8 form stands for."""
    groups = _grouped(matrix)
    scale = (groups.abs().amax(-1, keepdim=True) / 127).half().float()
    units = torch.where(scale > 0, groups / scale, 0).round_().clamp_(-127, 127)
    return (units * scale).flatten(1)[:, : matrix.shape[1]].contiguous()


def quantised_activations(x: Tensor) -> Tensor:
    """float32 [T, in] -> the float32 values that their INT8 form stands for."""
    groups = _grouped(x)
    highest = groups.abs().amax(-1, keepdim=True)
    units = torch.where(highest > 0, groups * (127 / highest), 0).round_()
    return (units * (highest / 127)).flatten(1)[:, : x.shape[1]].contiguous()


def quantised_heads(x: Tensor) -> Tensor:
    """float32 [T, heads, D], K after its rotation or V -> the float32 values that their INT8 form stands for."""
    wanted = x.abs().amax(-1, keepdim=True) / 127
    scale = ((wanted.view(torch.int32) + 0xFFFF) & ~0xFFFF).view(torch.float32)
    return torch.where(scale > 0, x / scale, 0).round_() * scale


def _grouped(x: Tensor) -> Tensor:
    """[rows, in] -> [rows, groups, 64], the last group filled with zeros."""
    filled: Tensor = pad(x, (0, -x.shape[1] % GROUP))
    return filled.view(x.shape[0], filled.shape[1] // GROUP, GROUP)  # x may have no rows
