"""The definition of INT8 precision: weights and activations in groups of 64 inputs, each group with its own scale.

    weights:      scale = max |w| / 127, rounded to half precision;  q = round(w / scale), at most 127 in magnitude
    activations:  scale = max |x| / 127 in float32;                  q = round(x * (127 / max |x|))

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


def _grouped(x: Tensor) -> Tensor:
    """[rows, in] -> [rows, groups, 64], the last group filled with zeros."""
    filled: Tensor = pad(x, (0, -x.shape[1] % GROUP))
    return filled.view(x.shape[0], -1, GROUP)
