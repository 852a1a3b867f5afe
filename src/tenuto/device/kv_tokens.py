"""The KV of single tokens as bytes, whatever order a device keeps it in: how a session leaves one pool for another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def token_bytes(views: Sequence[Tensor], block_size: int) -> int:
    """Bytes of one token over all views; see `read_tokens` for what a view is."""
    return sum(view[0].numel() // block_size * view.element_size() for view in views)


def read_tokens(views: Sequence[Tensor], block_size: int, slots: Sequence[int]) -> bytes:
    """The KV of some slots, token by token; of each token what every view holds of it, in the views' order.

    Args:
        views: of the pool's memory: [num_blocks, slots of a block..., numbers of a token...]. The dimensions of a
            block's slots, one or several, have the product `block_size`.
        slots: block * block_size + place in the block.
    """
    rows = []
    for view in views:
        read = view[_places(view, block_size, slots)].contiguous()
        rows.append(read.reshape(len(slots), -1).view(torch.uint8))
    return torch.cat(rows, 1).numpy().tobytes()


def write_tokens(views: Sequence[Tensor], block_size: int, slots: Sequence[int], data: bytes) -> None:
    """The reverse of `read_tokens`. Raises ValueError, with nothing written, for numbers that are not finite.

    Those would spoil not only this sequence: a block is used again, and what is masked is multiplied by zero.
    """
    width = token_bytes(views, block_size)
    assert len(data) == len(slots) * width, "the bytes are not those of so many tokens"
    rows = torch.from_numpy(np.frombuffer(data, dtype=np.uint8).reshape(len(slots), width).copy())
    parts, start = [], 0
    for view in views:
        places = _places(view, block_size, slots)
        end = start + view[0].numel() // block_size * view.element_size()
        part = rows[:, start:end].contiguous().view(view.dtype).reshape(view[places].shape)
        # Brain floats may be kept by their bits.
        numbers = part.view(torch.bfloat16) if part.dtype == torch.int16 else part
        if numbers.is_floating_point() and not bool(torch.isfinite(numbers).all()):
            raise ValueError("the KV holds numbers that are not finite")
        parts.append((places, part))
        start = end
    for view, (places, part) in zip(views, parts, strict=True):
        view[places] = part


def _places(view: Tensor, block_size: int, slots: Sequence[int]) -> tuple[Tensor, ...]:
    """Indices into the dimensions of a view that tell slots apart."""
    numbers = np.array(slots, dtype=np.int64)
    sizes = [view.shape[1]]
    while int(np.prod(sizes)) < block_size:
        sizes.append(view.shape[1 + len(sizes)])
    within = np.unravel_index(numbers % block_size, sizes)
    return tuple(torch.from_numpy(np.ascontiguousarray(index)) for index in (numbers // block_size, *within))
