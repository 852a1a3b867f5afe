"""The reference device's KV pool: one zeroed tensor per group of like layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tenuto.device import kv_tokens
from tenuto.device.protocol import AttentionSpec


@dataclass(frozen=True)
class ReferenceLayerKV:
    """Views into the pool. Heads come first, so that gathered blocks already have the form a batched matmul wants."""

    spec: AttentionSpec
    keys: Tensor  # [G, num_blocks, block_size, D]
    values: Tensor  # [G, num_blocks, block_size, D]
    value_scales: Tensor | None  # float32 [G, num_blocks, block_size], with INT8 KV


class ReferenceKVPool:
    """Storage is [layers of the group, 2, G, num_blocks, block_size, D]; beside it are the values' scales, if any."""

    def __init__(
        self,
        specs: Sequence[AttentionSpec],
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        *,
        scaled: bool = False,
    ) -> None:
        assert num_blocks > 0, "a pool without blocks holds no sequence"
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.dtype = dtype
        self._groups: list[Tensor] = []
        self._scales: list[Tensor] = []
        layers: dict[int, ReferenceLayerKV] = {}
        for spec in dict.fromkeys(specs):
            members = [i for i, other in enumerate(specs) if other == spec]
            shape = (len(members), 2, spec.num_kv_heads, num_blocks, block_size, spec.head_dim)
            # Zeroed, not empty: masked slots are multiplied by zero, and zero times an old NaN would be NaN.
            storage = torch.zeros(shape, dtype=dtype)
            self._groups.append(storage)
            for at, index in enumerate(members):
                scales = torch.zeros(shape[2:5]) if scaled else None
                if scales is not None:
                    self._scales.append(scales)
                layers[index] = ReferenceLayerKV(spec, storage[at, 0], storage[at, 1], scales)
        self._layers = [layers[i] for i in range(len(specs))]

    @property
    def num_bytes(self) -> int:
        return sum(group.nbytes for group in self._groups)

    @property
    def specs(self) -> tuple[AttentionSpec, ...]:
        return tuple(layer.spec for layer in self._layers)

    def layer(self, index: int) -> ReferenceLayerKV:
        return self._layers[index]

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy (source, destination) blocks in every layer."""
        if not pairs:
            return
        sources, destinations = zip(*pairs, strict=True)
        assert not set(sources) & set(destinations), "a block is both source and destination"
        assert len(set(destinations)) == len(destinations), "two sources for one block"
        from_blocks, to_blocks = torch.tensor(sources), torch.tensor(destinations)
        for group in self._groups:
            group[:, :, :, to_blocks] = group[:, :, :, from_blocks]
        for scales in self._scales:
            scales[:, to_blocks] = scales[:, from_blocks]

    @property
    def layout(self) -> str:
        return str(self.dtype).removeprefix("torch.") + (" with scales of values, keys spread" if self._scales else "")

    @property
    def token_bytes(self) -> int:
        return kv_tokens.token_bytes(self._views, self.block_size)

    def read_tokens(self, slots: Sequence[int]) -> bytes:
        return kv_tokens.read_tokens(self._views, self.block_size, slots)

    def write_tokens(self, slots: Sequence[int], data: bytes) -> None:
        kv_tokens.write_tokens(self._views, self.block_size, slots, data)

    @property
    def _views(self) -> list[Tensor]:
        """Layer by layer: keys and values [num_blocks, block_size, G, D], then the scales, if any."""
        views = []
        for layer in self._layers:
            views += [layer.keys.permute(1, 2, 0, 3), layer.values.permute(1, 2, 0, 3)]
            if layer.value_scales is not None:
                views.append(layer.value_scales.permute(1, 2, 0))
        return views
