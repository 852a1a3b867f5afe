"""The definition of INT8 precision: what values the integers stand for.

Inputs of a product are taken in chunks of 64. A chunk x is rotated to H x / 8, with the Hadamard matrix H of size 64,
weights and activations alike: their product stays the same, and an outlier is spread over its chunk. One to twelve
chunks, a span, share a scale: the most that divides the number of chunks. K, V and queries have theirs by token and
head; the weights of values, exp(score - highest score), are multiplied by the values' scales and have a scale for each
query, head and split of 256 keys:

    weights:      scale = max |w| / 127, rounded to half precision;  q = round(w / scale), at most 127 in magnitude
    activations:  scale = max |x| / 127 in float32;                  q = round(x * (127 / max |x|))
    K and V:      scale = max |x| / 127, rounded up to bfloat16;     q = round(x / scale)
    queries:      as activations, after multiplication by the scores' scale
    of values:    scale = max p / 255 in float32;                    q = round(p * (255 / max p))

Queries and K whose size is a multiple of 64 are rotated in chunks as well, after the rotation by their position.
Rounding is half to even. Products of integers are exact; they are multiplied by both scales in float32. Here the values
that the integers stand for are made, so that any float product defines the result. The rotation is that of QuaRot
(Ashkboos et al., 2024), within chunks.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

CHUNK = 64
MAX_SPAN = 12


def quantised_weights(matrix: Tensor) -> Tensor:
    """float32 [out, in] -> rotated, the values that its INT8 form stands for: [out, in rounded up to chunks]."""
    spans = rotated_spans(matrix)
    scale = (spans.abs().amax(-1, keepdim=True) / 127).half().float()
    units = torch.where(scale > 0, spans / scale, 0).round_().clamp_(-127, 127)
    return (units * scale).flatten(1)


def quantised_activations(x: Tensor) -> Tensor:
    """float32 [T, in] -> rotated, the values that their INT8 form stands for: [T, in rounded up to chunks]."""
    return _rounded(rotated_spans(x), 127).flatten(1)


def spread_heads(x: Tensor) -> Tensor:
    """float32 [T, heads, D], Q or K after the rotation by position -> rotated in chunks, if they are whole chunks."""
    size = x.shape[-1]
    return rotated(x.view(*x.shape[:-1], size // CHUNK, CHUNK)).view(x.shape) if size % CHUNK == 0 else x


def quantised_queries(q: Tensor) -> Tensor:
    """float32 [..., D], spread -> the values that their INT8 form stands for."""
    return _rounded(q, 127)


def quantised_shares(shares: Tensor) -> Tensor:
    """Weights of values [..., keys of a split], not negative -> the values that their form in bytes stands for."""
    return _rounded(shares, 255)


def quantised_heads(x: Tensor) -> tuple[Tensor, Tensor]:
    """float32 [T, heads, D], spread K or V -> the values that their INT8 form stands for, and the scales
    [T, heads, 1]."""
    wanted = x.abs().amax(-1, keepdim=True) / 127
    scale = ((wanted.view(torch.int32) + 0xFFFF) & ~0xFFFF).view(torch.float32)
    return torch.where(scale > 0, x / scale, 0).round_() * scale, scale


def span_of(num_in: int) -> int:
    """Chunks that share a scale."""
    num_chunks = -(-num_in // CHUNK)
    return max(span for span in range(1, MAX_SPAN + 1) if num_chunks % span == 0)


def rotated(chunks: Tensor) -> Tensor:
    """Each chunk [..., 64] times H / 8, by the fast Walsh-Hadamard transform: its own inverse."""
    for stride in (32, 16, 8, 4, 2, 1):
        pairs = chunks.reshape(*chunks.shape[:-1], CHUNK // (2 * stride), 2, stride)
        upper, lower = pairs.select(-2, 0), pairs.select(-2, 1)
        chunks = torch.stack([upper + lower, upper - lower], -2).view(chunks.shape)
    return chunks * 0.125


def rotated_spans(x: Tensor) -> Tensor:
    """[rows, in] -> rotated, [rows, spans, inputs of a span]; the last chunk is filled with zeros."""
    span, num_chunks = span_of(x.shape[1]), -(-x.shape[1] // CHUNK)  # x may have no rows: no size is left open
    chunks = pad(x, (0, -x.shape[1] % CHUNK)).view(x.shape[0], num_chunks, CHUNK)
    return rotated(chunks).view(x.shape[0], num_chunks // span, span * CHUNK)


def _rounded(x: Tensor, steps: int) -> Tensor:
    """Along the last dimension, in steps of the largest magnitude / steps."""
    highest = x.abs().amax(-1, keepdim=True)
    return torch.where(highest > 0, x * (steps / highest), 0).round_() * (highest / steps)
