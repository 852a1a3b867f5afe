"""All layers of a decoder in one native call (native/decoder.cpp)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_void_p
from dataclasses import dataclass

from torch import Tensor

from tenuto.device.cpu.kv_pool import CpuKVPool
from tenuto.device.cpu.library import DecoderLayerStruct, MatrixStruct, NativeLibrary, StepStruct
from tenuto.device.cpu.scratch import Scratch, address
from tenuto.device.protocol import Activation, KVPool, LayerWeights, LinearWeight, Step
from tenuto.device.ragged import RaggedBatch

ACTIVATIONS: dict[Activation, int] = {"silu": 0, "gelu_tanh": 1}
_PANEL = 16  # outputs that are packed together


@dataclass(frozen=True)
class PackedMatrix:
    """A matrix as the kernels want it; see native/int8.h and native/int4.h."""

    bits: int  # of a weight: 8 or 4
    packed: Tensor  # uint8, 64-byte aligned
    in_features: int
    out_features: int
    bias: Tensor | None

    @property
    def struct(self) -> MatrixStruct:
        return MatrixStruct(self.packed.data_ptr(), address(self.bias), self.in_features, self.out_features, self.bits)


@dataclass(frozen=True)
class CpuStep:
    batch: RaggedBatch
    angles: tuple[Tensor, ...]  # float32 [T, 2, D / 2] of each rotary table
    query_starts: Tensor  # int32 [S + 1]
    kv_lens: Tensor  # int32 [S]


class CpuLayers:
    """Implements `FusedLayers`.

    Args:
        pool: the threads, as the library made them.
        scratch: of the device.
    """

    def __init__(self, native: NativeLibrary, pool: int, scratch: Scratch, layers: Sequence[LayerWeights]) -> None:
        self._native, self._pool, self._scratch = native, pool, scratch
        self._layers = tuple(layers)  # keeps the memory alive that the structures point to
        self._structs = (DecoderLayerStruct * len(layers))(*(_struct(layer) for layer in layers))

    @staticmethod
    def can_fuse(layer: LayerWeights) -> bool:
        """Gates and ups must each be whole panels."""
        return layer.down.in_features % _PANEL == 0

    def __call__(self, x: Tensor, kv: KVPool, step: Step) -> Tensor:
        assert isinstance(kv, CpuKVPool) and isinstance(step, CpuStep)
        rows, count = x.shape[0], len(self._layers)
        tables, angles = step.batch.block_tables, [angle.data_ptr() for angle in step.angles]
        struct = StepStruct(
            rows,
            tables.shape[0],
            tables.shape[1],
            step.query_starts.data_ptr(),
            step.kv_lens.data_ptr(),
            tables.data_ptr(),
            step.batch.slots.data_ptr(),
            (c_void_p * len(angles))(*angles),
        )
        with self._scratch.of(self._native.decoder_scratch_bytes(self._structs, count, rows)) as scratch:
            self._native.decoder_layers(
                self._pool, self._structs, kv.structs, count, ctypes.byref(struct), x.data_ptr(), scratch
            )
        return x


def _struct(layer: LayerWeights) -> DecoderLayerStruct:
    transform = layer.transform
    return DecoderLayerStruct(
        layer.attention_norm.data_ptr(),
        address(layer.attention_post_norm),
        layer.mlp_norm.data_ptr(),
        address(layer.mlp_post_norm),
        address(transform.q_norm),
        address(transform.k_norm),
        *(_matrix(weight) for weight in (layer.qkv, layer.output, layer.gate_up, layer.down)),
        layer.spec.num_heads,
        -1 if transform.rotary is None else transform.rotary,
        ACTIVATIONS[layer.activation],
        layer.eps,
        transform.eps,
        layer.spec.score_scale,
    )


def _matrix(weight: LinearWeight) -> MatrixStruct:
    assert isinstance(weight, PackedMatrix)
    return weight.struct
