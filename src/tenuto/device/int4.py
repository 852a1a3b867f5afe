"""The definition of INT4 precision: what values four bits stand for. Activations are those of `device.int8`.

Weights are rotated and cut into spans as those of INT8, and a span of a row has a half-precision scale. Each weight is
one of sixteen levels, which lie closer where the weights of a rotated chunk are many: those of the quantiser that is
best for the normal distribution (Lloyd, 1982; Max, 1960). Each chunk of a row has the levels in one of eight shapes,
the smallest all zero:

    value = ((level * factor + 2^14) >> 15) * scale, the first product an integer of -127..127

so that a matrix is an INT8 one, and products are computed as such. Three scales are tried, largest magnitude * 0.85,
0.95 or 1.05 / 127, and for each of them all shapes of each chunk: the least sum of squared errors is taken, of weights
in units of the scale rounded to integers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tenuto.device.int8 import CHUNK, rotated_spans

LEVELS = (-127, -96, -75, -58, -44, -31, -18, -6, 6, 18, 31, 44, 58, 75, 96, 127)
FACTORS = (0, 11469, 16384, 19661, 22282, 25231, 28836, 32767)
FITS = (0.85, 0.95, 1.05)
REACH = 160  # a weight is at most so many units of its scale


def shapes() -> Tensor:
    """float32 [8, 16]: the levels of each shape, in units of the scale."""
    return torch.tensor([[(level * factor + (1 << 14)) >> 15 for level in LEVELS] for factor in FACTORS]).float()


def nearest_levels() -> Tensor:
    """float32 [8, 2 REACH + 1]: for each shape and weight from -REACH to REACH units, the nearest level, the lower of
    two."""
    units = torch.arange(-REACH, REACH + 1.0)
    all_levels = shapes()
    places = (units[None, :, None] - all_levels[:, None, :]).abs().argmin(-1)
    return all_levels.gather(1, places)


def quantised_weights(matrix: Tensor) -> Tensor:
    """float32 [out, in] -> rotated, the values that its INT4 form stands for: [out, in rounded up to chunks]."""
    spans = rotated_spans(matrix)  # [out, spans, inputs of a span]
    highest = spans.abs().amax(-1, keepdim=True)
    nearest = nearest_levels()
    best, least = torch.zeros_like(spans), torch.full_like(highest, torch.inf)
    for fit in FITS:
        scale = (highest * torch.tensor(fit) / 127).clamp(max=_HIGHEST_HALF).half().float()
        units = torch.where(scale > 0, spans / scale, 0).round_().clamp_(-REACH, REACH)
        levels, error = _with_best_shapes(units, nearest)
        error *= scale * scale
        better = error < least
        best, least = torch.where(better, levels * scale, best), torch.where(better, error, least)
    return best.flatten(1)


def _with_best_shapes(units: Tensor, nearest: Tensor) -> tuple[Tensor, Tensor]:
    """Units [out, spans, inputs of a span] -> the levels they become, and the spans' squared errors [out, spans, 1]."""
    chunks = units.view(*units.shape[:-1], -1, CHUNK)
    places = chunks.long() + REACH
    best, least = torch.zeros_like(chunks), torch.full_like(chunks[..., :1], torch.inf)
    for of_shape in nearest:
        levels = of_shape[places]
        error = (chunks - levels).square().sum(-1, keepdim=True)
        better = error < least
        best, least = torch.where(better, levels, best), torch.where(better, error, least)
    return best.flatten(-2), least.sum(-2)


_HIGHEST_HALF = 65504.0
