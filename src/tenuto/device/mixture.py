"""A mixture of experts over a device's own products."""

from __future__ import annotations

import torch
from torch import Tensor

from tenuto.device.protocol import Device, Mixture


def mix(device: Device, x: Tensor, mixture: Mixture) -> Tensor:
    """Each token through the experts its router likes best: [T, hidden] in x's dtype.

    The router's softmax is float32; a token's experts are added in the order of the router's liking, whatever experts
    the other tokens of the batch went to.
    """
    weights, chosen = device.linear(x, mixture.router).float().softmax(-1).topk(mixture.num_active)
    if mixture.normalise:
        weights = weights / weights.sum(-1, keepdim=True)
    weights = weights.to(x.dtype)
    out = x.new_empty(*chosen.shape, x.shape[1])  # one place for each choice of each token
    for index in torch.unique(chosen).tolist():
        expert = mixture.experts[index]
        rows, places = torch.where(chosen == index)
        inner = device.gated(device.linear(x.index_select(0, rows), expert.gate_up), mixture.activation)
        out[rows, places] = device.linear(inner, expert.down) * weights[rows, places].unsqueeze(-1)
    total = out[:, 0]
    for place in range(1, mixture.num_active):
        total = total + out[:, place]
    return total.contiguous()
