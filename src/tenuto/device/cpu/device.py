"""The CPU device: INT8 or INT4 weights, INT8 activations, float32 or INT8 KV, every operation a native kernel.

Integer products are exact and float sums have one order per row, so that it is row-invariant by construction.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tenuto.device.cpu.kv_pool import BLOCK_SIZE, CpuKVPool, CpuLayerKV, token_bytes
from tenuto.device.cpu.layers import ACTIVATIONS, CpuLayers, CpuStep, PackedMatrix
from tenuto.device.cpu.library import NativeLibrary
from tenuto.device.cpu.scratch import Scratch, address, aligned
from tenuto.device.mixture import mix
from tenuto.device.packing import ALIGNMENT, PackedLinear
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
from tenuto.device.reference import TABLE_DTYPES, ReferenceDevice
from tenuto.device.rotary import ReferenceRotaryTable
from tenuto.errors import UnsupportedModel

_MAX_HEAD_DIM = 1024


class CpuDevice:
    """See the `Device` protocol for the operations.

    Args:
        library: the compiled kernels.
        num_threads: threads that compute, the caller's included.
        kv_type: "float" is float32.
        precision: "int8" or "int4".
    """

    name = "cpu"
    block_size = BLOCK_SIZE
    row_invariant = True

    def __init__(
        self, library: NativeLibrary, num_threads: int, kv_type: KVType = "float", precision: Precision = "int8"
    ) -> None:
        assert precision in INTEGERS
        self.precision: Precision = precision
        self._native = library
        self._kv_type: KVType = kv_type
        self._pool = library.pool_new(num_threads)
        weakref.finalize(self, library.pool_free, self._pool)
        self._scratch = Scratch()
        self._plain = ReferenceDevice("fp32")

    def upload(self, values: Floats) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(TABLE_DTYPES.get(self.precision, torch.float32))

    def upload_norm(self, values: Floats) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values))

    def prepare_linear(
        self, parts: Sequence[Floats], biases: Sequence[Floats] = (), *, exact: bool = False
    ) -> PackedMatrix:
        matrix = np.ascontiguousarray(np.concatenate(parts)) if len(parts) > 1 else np.ascontiguousarray(parts[0])
        num_out, num_in = matrix.shape
        bits = self._bits(exact)
        packed = aligned(self._packed_bytes(bits, num_out, num_in))
        pack = self._native.int4_pack if bits == 4 else self._native.int8_pack
        pack(self._pool, matrix.ctypes.data, num_out, num_in, packed.data_ptr())
        bias = torch.from_numpy(np.concatenate(biases)) if biases else None
        return PackedMatrix(bits, packed, num_in, num_out, bias)

    def _bits(self, exact: bool) -> int:
        return 4 if self.precision == "int4" and not exact else 8

    def _packed_bytes(self, bits: int, num_out: int, num_in: int) -> int:
        measure = self._native.int4_packed_bytes if bits == 4 else self._native.int8_packed_bytes
        num_bytes: int = measure(num_out, num_in)
        return num_bytes

    @property
    def packed_format(self) -> str:
        return f"{self.precision} {self._native.format_version()}; build {self._native.build}"

    def export_linear(self, weight: LinearWeight) -> PackedLinear:
        assert isinstance(weight, PackedMatrix)
        return PackedLinear(f"int{weight.bits}", weight.in_features, weight.out_features, weight.packed, weight.bias)

    def import_linear(self, packed: PackedLinear) -> PackedMatrix:
        forms = {f"int{bits}": bits for bits in {self._bits(exact) for exact in (False, True)}}
        if packed.form not in forms:
            raise ValueError(f"it is of form {packed.form!r:.20}, which precision {self.precision} has not")
        bits = forms[packed.form]
        wanted = self._packed_bytes(bits, packed.out_features, packed.in_features)
        if packed.packed.dtype != torch.uint8 or packed.packed.shape != (wanted,):
            raise ValueError(f"it is no INT{bits} matrix [{packed.out_features}, {packed.in_features}]")
        if packed.packed.data_ptr() % ALIGNMENT:
            raise ValueError("it is not aligned")
        if packed.bias is not None and (packed.bias.dtype, *packed.bias.shape) != (torch.float32, packed.out_features):
            raise ValueError("its bias is of another size")
        return PackedMatrix(bits, packed.packed, packed.in_features, packed.out_features, packed.bias)

    def rotary_table(self, inverse_frequencies: Tensor, scale: float, max_positions: int) -> ReferenceRotaryTable:
        return ReferenceRotaryTable(inverse_frequencies, scale, max_positions)

    def kv_bytes_per_token(self, specs: Sequence[AttentionSpec]) -> int:
        return sum(token_bytes(spec, self._kv_type) for spec in specs)

    def allocate_kv(self, specs: Sequence[AttentionSpec], num_blocks: int) -> CpuKVPool:
        for spec in specs:
            if spec.head_dim % 16 or spec.head_dim > _MAX_HEAD_DIM:
                raise UnsupportedModel(
                    f"{self.precision.upper()} on the CPU takes heads of a multiple of 16 up to {_MAX_HEAD_DIM} "
                    f"elements, this model's have {spec.head_dim}; use precision fp32 or bf16"
                )
        return CpuKVPool(specs, num_blocks, self._kv_type)

    def copy_blocks(self, kv: KVPool, pairs: Sequence[tuple[int, int]]) -> None:
        assert isinstance(kv, CpuKVPool)
        kv.copy_blocks(pairs)

    def begin_step(self, batch: RaggedBatch, rotary: Sequence[RotaryTable], kv: KVPool) -> CpuStep:
        angles = []
        for table in rotary:
            assert isinstance(table, ReferenceRotaryTable)
            angles.append(table.rows(batch.positions))
        return CpuStep(
            batch,
            tuple(angles),
            torch.tensor(batch.query_starts, dtype=torch.int32),
            torch.tensor(batch.kv_lens, dtype=torch.int32),
        )

    def embed(self, table: Tensor, token_ids: Tensor) -> Tensor:
        return table.index_select(0, token_ids).float()

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        out = torch.empty_like(x)
        self._native.rms_norm(
            self._pool, x.data_ptr(), None, weight.data_ptr(), x.shape[0], x.shape[1], eps, out.data_ptr(), None
        )
        return out

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        out, total = torch.empty_like(x), torch.empty_like(x)
        self._native.rms_norm(
            self._pool,
            x.data_ptr(),
            residual.data_ptr(),
            weight.data_ptr(),
            x.shape[0],
            x.shape[1],
            eps,
            out.data_ptr(),
            total.data_ptr(),
        )
        return out, total

    def linear(self, x: Tensor, weight: LinearWeight) -> Tensor:
        assert isinstance(weight, PackedMatrix)
        rows = x.shape[0]
        out = torch.empty(rows, weight.out_features)
        if rows == 0:
            return out
        with self._scratch.of(self._native.linear_scratch_bytes(rows, weight.in_features)) as scratch:
            self._native.linear(self._pool, x.data_ptr(), rows, ctypes.byref(weight.struct), out.data_ptr(), scratch)
        return out

    def rotate_and_write(self, qkv: Tensor, layer: LayerKV, step: Step, transform: HeadTransform) -> Tensor:
        assert isinstance(layer, CpuLayerKV) and isinstance(step, CpuStep)
        spec, rows = layer.spec, qkv.shape[0]
        q = torch.empty(rows, spec.num_heads, spec.head_dim)
        self._native.rotate_and_write(
            self._pool,
            qkv.data_ptr(),
            rows,
            spec.num_heads,
            address(None if transform.rotary is None else step.angles[transform.rotary]),
            address(transform.q_norm),
            address(transform.k_norm),
            transform.eps,
            spec.score_scale,
            step.batch.slots.data_ptr(),
            layer.reference,
            q.data_ptr(),
        )
        return q

    def attention(self, q: Tensor, layer: LayerKV, step: Step) -> Tensor:
        assert isinstance(layer, CpuLayerKV) and isinstance(step, CpuStep)
        out = torch.empty(q.shape[0], layer.spec.num_heads * layer.spec.head_dim)
        tables = step.batch.block_tables
        self._native.attention(
            self._pool,
            q.data_ptr(),
            layer.spec.num_heads,
            step.query_starts.data_ptr(),
            step.kv_lens.data_ptr(),
            tables.data_ptr(),
            tables.shape[1],
            tables.shape[0],
            layer.reference,
            out.data_ptr(),
        )
        return out

    def gated(self, gate_up: Tensor, activation: Activation) -> Tensor:
        rows, size = gate_up.shape[0], gate_up.shape[1] // 2
        out = torch.empty(rows, size)
        self._native.gated(self._pool, gate_up.data_ptr(), rows, size, ACTIVATIONS[activation], out.data_ptr())
        return out

    def mixture(self, x: Tensor, mixture: Mixture) -> Tensor:
        return mix(self, x, mixture)

    def fuse(self, layers: Sequence[LayerWeights]) -> CpuLayers | None:
        if not layers or not all(CpuLayers.can_fuse(layer) for layer in layers):
            return None
        return CpuLayers(self._native, self._pool, self._scratch, layers)

    # Encoders: their products are native, the rest is the reference's.

    def add_layer_norm(self, x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        return self._plain.add_layer_norm(x, residual, weight, bias, eps)

    def activate(self, x: Tensor, function: Pointwise) -> Tensor:
        return self._plain.activate(x, function)

    def full_attention(self, qkv: Tensor, starts: Sequence[int], num_heads: int) -> Tensor:
        return self._plain.full_attention(qkv, starts, num_heads)
