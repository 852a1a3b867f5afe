"""Reference attention of encoders: every token of a text sees every other.

Texts are computed one after the other, in shapes that depend on the text's own length alone and in memory of their
own, so a text's bits are the same alone and in any batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

_MAX_SCORES = 1 << 24  # float32 elements at once: 64 MiB
_MIN_ROWS = 16


def attend_fully(qkv: Tensor, starts: Sequence[int], num_heads: int) -> Tensor:
    """[T, 3 * H * D] -> [T, H * D]; scores and sums are float32. See `Device.full_attention`."""
    width = qkv.shape[1] // 3
    out = qkv.new_empty(qkv.shape[0], width)
    for start, end in pairwise(starts):
        out[start:end] = _attend_text(qkv[start:end], num_heads)
    return out


def _attend_text(qkv: Tensor, num_heads: int) -> Tensor:
    """One text: [n, 3 * H * D] -> [n, H * D]."""
    length = qkv.shape[0]
    heads = qkv.float().view(length, 3, num_heads, -1).permute(1, 2, 0, 3).contiguous()  # [3, H, n, D]
    q, k, v = heads[0], heads[1].transpose(1, 2), heads[2]
    q = q * q.shape[-1] ** -0.5
    rows = max(_MIN_ROWS, _MAX_SCORES // (num_heads * length))
    parts = [torch.bmm(torch.bmm(q[:, at : at + rows].contiguous(), k).softmax(-1), v) for at in range(0, length, rows)]
    return torch.cat(parts, dim=1).transpose(0, 1).reshape(length, -1).to(qkv.dtype)
