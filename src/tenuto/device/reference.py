"""The reference device: plain torch on the CPU. Its arithmetic is the definition the others are compared with.

Weights, activations and KV are in the device's precision; norms, rotation, softmax and activation are computed in
float32 and rounded once, and products accumulate in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tenuto.device import paged_attention
from tenuto.device.kv_pool import ReferenceKVPool, ReferenceLayerKV
from tenuto.device.paged_attention import TileGroup
from tenuto.device.protocol import AttentionSpec, Floats, KVPool, LayerKV, LinearWeight, Precision, Step
from tenuto.device.ragged import RaggedBatch
from tenuto.device.row_tiles import RowTiles, probe, tiled

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class ReferenceLinear:
    """A matrix stored [in, out]: products with few rows stream it at full width."""

    matrix: Tensor
    tiles: RowTiles

    @property
    def in_features(self) -> int:
        return self.matrix.shape[0]

    @property
    def out_features(self) -> int:
        return self.matrix.shape[1]


@dataclass(frozen=True)
class ReferenceStep:
    batch: RaggedBatch
    cos: Tensor  # float32 [T, 1, D / 2]
    sin: Tensor
    groups: dict[AttentionSpec, list[TileGroup]]


class ReferenceDevice:
    """See the `Device` protocol for the operations.

    Args:
        dtype: "fp32" or "bf16".
        block_size: token slots per KV block.
    """

    def __init__(self, dtype: Precision = "fp32", block_size: int = 16) -> None:
        assert dtype in _DTYPES, f"unknown precision {dtype}"
        assert block_size > 0
        self.name = "reference"
        self.precision: Precision = dtype
        self.block_size = block_size
        self._dtype = _DTYPES[dtype]
        self._row_tiles: dict[tuple[int, int], RowTiles] = {}
        self._attention_exact: dict[AttentionSpec, bool] = {}

    @property
    def row_invariant(self) -> bool:
        """True as long as every product shape prepared so far passed its probe on this machine."""
        return all(tiles.exact for tiles in self._row_tiles.values()) and all(self._attention_exact.values())

    def upload(self, values: Floats) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self._dtype)

    def prepare_linear(self, parts: Sequence[Floats]) -> ReferenceLinear:
        matrix = torch.cat([torch.from_numpy(part).to(self._dtype) for part in parts]).t().contiguous()
        shape = (matrix.shape[0], matrix.shape[1])
        if shape not in self._row_tiles:
            with torch.inference_mode():
                self._row_tiles[shape] = probe(lambda x: x @ matrix, *shape, self._dtype)
        return ReferenceLinear(matrix, self._row_tiles[shape])

    def rotary_table(self, head_dim: int, theta: float, max_positions: int) -> Tensor:
        frequencies = 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
        angles = torch.arange(max_positions, dtype=torch.float32)[:, None] * frequencies
        return torch.stack([angles.cos(), angles.sin()], dim=1)

    def kv_bytes_per_token(self, specs: Sequence[AttentionSpec]) -> int:
        return sum(2 * spec.num_kv_heads * spec.head_dim * self._dtype.itemsize for spec in specs)

    def allocate_kv(self, specs: Sequence[AttentionSpec], num_blocks: int) -> ReferenceKVPool:
        split = paged_attention.SPLIT_TOKENS // self.block_size * self.block_size or self.block_size
        for spec in set(specs) - set(self._attention_exact):
            with torch.inference_mode():
                self._attention_exact[spec] = paged_attention.probe_products(spec, split)
        # An ordinary tensor, so that it can be written in inference mode and outside of it.
        with torch.inference_mode(False):
            return ReferenceKVPool(specs, num_blocks, self.block_size, self._dtype)

    def copy_blocks(self, kv: KVPool, pairs: Sequence[tuple[int, int]]) -> None:
        assert isinstance(kv, ReferenceKVPool)
        kv.copy_blocks(pairs)

    def begin_step(self, batch: RaggedBatch, rotary: Tensor, kv: KVPool) -> ReferenceStep:
        assert isinstance(kv, ReferenceKVPool)
        angles = rotary.index_select(0, batch.positions).unsqueeze(1)
        groups = {spec: paged_attention.plan(batch, spec, self.block_size) for spec in dict.fromkeys(kv.specs)}
        return ReferenceStep(batch, angles[:, :, 0], angles[:, :, 1], groups)

    def embed(self, table: Tensor, token_ids: Tensor) -> Tensor:
        return table.index_select(0, token_ids)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True).add_(eps))
        return (wide * scale).mul_(weight).to(x.dtype)

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        total = x + residual
        return self.rms_norm(total, weight, eps), total

    def linear(self, x: Tensor, weight: LinearWeight) -> Tensor:
        assert isinstance(weight, ReferenceLinear)
        return tiled(lambda rows: rows @ weight.matrix, x, weight.out_features, weight.tiles)

    def rotate_and_write(self, qkv: Tensor, layer: LayerKV, step: Step) -> Tensor:
        assert isinstance(layer, ReferenceLayerKV) and isinstance(step, ReferenceStep)
        spec = layer.spec
        heads = qkv.view(qkv.shape[0], -1, spec.head_dim)
        num_rotated = spec.num_heads + spec.num_kv_heads
        rotated = _rotate(heads[:, :num_rotated], step.cos, step.sin)
        slots = step.batch.slots
        for stored, new in ((layer.keys, rotated[:, spec.num_heads :]), (layer.values, heads[:, num_rotated:])):
            flat = stored.view(spec.num_kv_heads, -1, spec.head_dim)
            flat.index_copy_(1, slots, new.transpose(0, 1))
        return rotated[:, : spec.num_heads]

    def attention(self, q: Tensor, layer: LayerKV, step: Step) -> Tensor:
        assert isinstance(layer, ReferenceLayerKV) and isinstance(step, ReferenceStep)
        return paged_attention.attend(q, layer, step.groups[layer.spec])

    def swiglu(self, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.float().chunk(2, dim=-1)
        # Not torch's silu: its vector and scalar paths differ in the last bit, so that a row's place would matter.
        return (gate / gate.neg().exp_().add_(1)).mul_(up).to(gate_up.dtype)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate pairs (j, j + D / 2) of [T, heads, D] by each token's angles."""
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)
