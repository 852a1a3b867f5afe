"""The reference device: plain torch on the CPU. Its arithmetic is the definition the others are compared with.

Weights, activations and KV are in the device's precision; norms, rotation, softmax and activation are computed in
float32 and rounded once, and products accumulate in float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tenuto.device import int4, int8, paged_attention
from tenuto.device.full_attention import attend_fully
from tenuto.device.kv_pool import ReferenceKVPool, ReferenceLayerKV
from tenuto.device.mixture import mix
from tenuto.device.paged_attention import TileGroup
from tenuto.device.protocol import (
    INTEGERS,
    Activation,
    AttentionSpec,
    Floats,
    HeadTransform,
    KVPool,
    KVType,
    LayerKV,
    LayerWeights,
    LinearWeight,
    Mixture,
    Pointwise,
    Precision,
    RotaryTable,
    Step,
)
from tenuto.device.ragged import RaggedBatch
from tenuto.device.rotary import Angles, ReferenceRotaryTable, rotate
from tenuto.device.row_tiles import RowTiles, probe, tiled

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "int8": torch.float32, "int4": torch.float32}
TABLE_DTYPES: dict[Precision, torch.dtype] = {"int4": torch.bfloat16}  # of embeddings, if another


@dataclass(frozen=True)
class ReferenceLinear:
    """A matrix stored [in, out]: products with few rows stream it at full width. With integers, inputs are rotated."""

    matrix: Tensor
    in_features: int
    tiles: RowTiles
    bias: Tensor | None = None  # [out]

    @property
    def out_features(self) -> int:
        return self.matrix.shape[1]


@dataclass(frozen=True)
class ReferenceStep:
    batch: RaggedBatch
    angles: tuple[Angles, ...]  # of each rotary table
    groups: dict[AttentionSpec, list[TileGroup]]


class ReferenceDevice:
    """See the `Device` protocol for the operations.

    Args:
        dtype: "fp32", "bf16", "int8" or "int4" (see `device.int8` and `device.int4`; all but the matrices' products is
            float32 then, and INT4 has the embedding table in bfloat16).
        block_size: token slots per KV block.
        kv_type: with "int8" (of those two), attention is that of `device.int8`; K and V are stored as wide as ever.
    """

    def __init__(self, dtype: Precision = "fp32", block_size: int = 16, kv_type: KVType = "float") -> None:
        assert dtype in _DTYPES, f"unknown precision {dtype}"
        assert block_size > 0
        self.name = "reference"
        self.precision: Precision = dtype
        self.block_size = block_size
        self._kv_type = kv_type
        self._dtype = _DTYPES[dtype]
        self._row_tiles: dict[tuple[int, int], RowTiles] = {}
        self._attention_exact: dict[AttentionSpec, bool] = {}

    @property
    def row_invariant(self) -> bool:
        """True as long as every product shape prepared so far passed its probe on this machine."""
        return all(tiles.exact for tiles in self._row_tiles.values()) and all(self._attention_exact.values())

    def upload(self, values: Floats) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(TABLE_DTYPES.get(self.precision, self._dtype))

    def upload_norm(self, values: Floats) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values))

    def prepare_linear(
        self, parts: Sequence[Floats], biases: Sequence[Floats] = (), *, exact: bool = False
    ) -> ReferenceLinear:
        stacked = torch.cat([torch.from_numpy(part).to(self._dtype) for part in parts])
        if self.precision in INTEGERS:
            definition = int4 if self.precision == "int4" and not exact else int8
            stacked = definition.quantised_weights(stacked)
        matrix = stacked.t().contiguous()
        shape = (matrix.shape[0], matrix.shape[1])
        if shape not in self._row_tiles:
            with torch.inference_mode():
                self._row_tiles[shape] = probe(lambda x: x @ matrix, *shape, self._dtype)
        bias = torch.from_numpy(np.concatenate(biases)).to(self._dtype) if biases else None
        return ReferenceLinear(matrix, parts[0].shape[1], self._row_tiles[shape], bias)

    def rotary_table(self, inverse_frequencies: Tensor, scale: float, max_positions: int) -> ReferenceRotaryTable:
        return ReferenceRotaryTable(inverse_frequencies, scale, max_positions)

    def kv_bytes_per_token(self, specs: Sequence[AttentionSpec]) -> int:
        return sum(2 * spec.num_kv_heads * spec.head_dim * self._dtype.itemsize for spec in specs)

    def allocate_kv(self, specs: Sequence[AttentionSpec], num_blocks: int) -> ReferenceKVPool:
        split = paged_attention.SPLIT_TOKENS // self.block_size * self.block_size or self.block_size
        for spec in set(specs) - set(self._attention_exact):
            with torch.inference_mode():
                self._attention_exact[spec] = paged_attention.probe_products(spec, split)
        # An ordinary tensor, so that it can be written in inference mode and outside of it.
        with torch.inference_mode(False):
            return ReferenceKVPool(specs, num_blocks, self.block_size, self._dtype, scaled=self._kv_type == "int8")

    def copy_blocks(self, kv: KVPool, pairs: Sequence[tuple[int, int]]) -> None:
        assert isinstance(kv, ReferenceKVPool)
        kv.copy_blocks(pairs)

    def begin_step(self, batch: RaggedBatch, rotary: Sequence[RotaryTable], kv: KVPool) -> ReferenceStep:
        assert isinstance(kv, ReferenceKVPool)
        groups = {spec: paged_attention.plan(batch, spec, self.block_size) for spec in dict.fromkeys(kv.specs)}
        angles = []
        for table in rotary:
            assert isinstance(table, ReferenceRotaryTable)
            angles.append(table.at(batch.positions))
        return ReferenceStep(batch, tuple(angles), groups)

    def embed(self, table: Tensor, token_ids: Tensor) -> Tensor:
        return table.index_select(0, token_ids).to(self._dtype)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True).add_(eps))
        return (wide * scale).mul_(weight).to(x.dtype)

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        total = x + residual
        return self.rms_norm(total, weight, eps), total

    def linear(self, x: Tensor, weight: LinearWeight) -> Tensor:
        assert isinstance(weight, ReferenceLinear)
        if self.precision in INTEGERS:
            x = int8.quantised_activations(x)
        out = tiled(lambda rows: rows @ weight.matrix, x, weight.out_features, weight.tiles)
        return out if weight.bias is None else out.add_(weight.bias)

    def rotate_and_write(self, qkv: Tensor, layer: LayerKV, step: Step, transform: HeadTransform) -> Tensor:
        assert isinstance(layer, ReferenceLayerKV) and isinstance(step, ReferenceStep)
        spec = layer.spec
        heads = qkv.view(qkv.shape[0], -1, spec.head_dim)
        num_rotated = spec.num_heads + spec.num_kv_heads
        q, k, v = heads[:, : spec.num_heads], heads[:, spec.num_heads : num_rotated], heads[:, num_rotated:]
        if transform.q_norm is not None:
            q = self.rms_norm(q, transform.q_norm, transform.eps)
        if transform.k_norm is not None:
            k = self.rms_norm(k, transform.k_norm, transform.eps)
        if transform.rotary is not None:
            angles = step.angles[transform.rotary]
            q, k = rotate(q, angles), rotate(k, angles)
        if self._kv_type == "int8":
            assert layer.value_scales is not None
            q, k = int8.spread_heads(q), int8.spread_heads(k)
            (k, _), (v, scales) = int8.quantised_heads(k), int8.quantised_heads(v)
            layer.value_scales.view(spec.num_kv_heads, -1).index_copy_(1, step.batch.slots, scales.squeeze(-1).t())
        for stored, new in ((layer.keys, k), (layer.values, v)):
            flat = stored.view(spec.num_kv_heads, -1, spec.head_dim)
            flat.index_copy_(1, step.batch.slots, new.transpose(0, 1))
        return q

    def attention(self, q: Tensor, layer: LayerKV, step: Step) -> Tensor:
        assert isinstance(layer, ReferenceLayerKV) and isinstance(step, ReferenceStep)
        return paged_attention.attend(q, layer, step.groups[layer.spec])

    def gated(self, gate_up: Tensor, activation: Activation) -> Tensor:
        gate, up = gate_up.float().chunk(2, dim=-1)
        return (gate / _divisor(gate, activation)).mul_(up).to(gate_up.dtype)

    def mixture(self, x: Tensor, mixture: Mixture) -> Tensor:
        return mix(self, x, mixture)

    def fuse(self, layers: Sequence[LayerWeights]) -> None:
        return None

    def add_layer_norm(self, x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        total = (x + residual).float()
        return torch.nn.functional.layer_norm(total, weight.shape, weight, bias, eps).to(x.dtype)

    def activate(self, x: Tensor, function: Pointwise) -> Tensor:
        wide = x.float()
        match function:
            case "gelu":
                wide = torch.erf(wide * math.sqrt(0.5)).add_(1).mul_(wide).mul_(0.5)
            case "gelu_tanh":
                wide = wide / _divisor(wide, "gelu_tanh")
            case "tanh":
                wide = wide.tanh()
        return wide.to(x.dtype)

    def full_attention(self, qkv: Tensor, starts: Sequence[int], num_heads: int) -> Tensor:
        return attend_fully(qkv, starts, num_heads)


def _divisor(gate: Tensor, activation: Activation) -> Tensor:
    """What the gate is divided by: 1 + exp(-gate) for silu; for gelu the same of twice the argument of its tanh.

    Not torch's own functions: their vector and scalar paths differ in the last bit, so that a row's place would
    matter. Gelu in its tanh form is x (1 + tanh u) / 2 = x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3)
    (Hendrycks and Gimpel, "Gaussian error linear units", 2016).
    """
    if activation == "silu":
        return gate.neg().exp_().add_(1)
    cubic = gate * gate * gate
    return cubic.mul_(0.044715).add_(gate).mul_(-2 * math.sqrt(2 / math.pi)).exp_().add_(1)
