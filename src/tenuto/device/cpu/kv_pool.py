"""The CPU device's KV pool, in the layout of native/attention.h."""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
from collections.abc import Sequence

import torch
from torch import Tensor

from tenuto.device import kv_tokens
from tenuto.device.cpu.library import LayerStruct
from tenuto.device.protocol import AttentionSpec, KVType

BLOCK_SIZE = 16
_SCALE_BYTES = 2


def token_bytes(spec: AttentionSpec, kv_type: KVType) -> int:
    """Bytes that one token takes in one layer, its scales included."""
    head_bytes = spec.head_dim * 4 if kv_type == "float" else spec.head_dim + _SCALE_BYTES
    return 2 * spec.num_kv_heads * head_bytes


_HUGE_PAGE_BYTES = 1 << 21


def _zeros(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Zeros, on huge pages where the system gives them.

    Blocks are read in any order, and with small pages the processor looks up an address for nearly each of them: about
    a tenth of a decode step of eight sessions.
    """
    num_bytes = math.prod(shape) * dtype.itemsize
    if num_bytes < _HUGE_PAGE_BYTES or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.zeros(shape, dtype=dtype)
    memory = mmap.mmap(-1, num_bytes + _HUGE_PAGE_BYTES)  # zeroed by the system; the tensor keeps it
    with contextlib.suppress(OSError):  # a system built without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    whole = torch.frombuffer(memory, dtype=torch.uint8)
    start = -whole.data_ptr() % _HUGE_PAGE_BYTES
    return whole[start : start + num_bytes].view(dtype).view(shape)


class CpuLayerKV:
    """Keys and values [G, num_blocks, 16 * D] of one layer, as the kernels lay them; INT8 with scales, or float32."""

    def __init__(self, spec: AttentionSpec, num_blocks: int, kv_type: KVType) -> None:
        self.spec = spec
        places = (spec.num_kv_heads, num_blocks)
        dtype = torch.float32 if kv_type == "float" else torch.int8
        self.keys, self.values = (_zeros((*places, BLOCK_SIZE * spec.head_dim), dtype) for _ in range(2))
        # bfloat16 by its bits; a slot that was never written reads as zeros.
        num_scales = 0 if kv_type == "float" else BLOCK_SIZE
        self.key_scales, self.value_scales = (torch.zeros(*places, num_scales, dtype=torch.int16) for _ in range(2))
        scales = (None, None) if kv_type == "float" else (self.key_scales.data_ptr(), self.value_scales.data_ptr())
        self.struct = LayerStruct(
            self.keys.data_ptr(),
            self.values.data_ptr(),
            *scales,
            num_blocks,
            spec.num_kv_heads,
            spec.head_dim,
            spec.window or 0,
        )
        self.reference = ctypes.byref(self.struct)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Everything that belongs to blocks; the second dimension is the block."""
        return self.keys, self.values, self.key_scales, self.value_scales

    @property
    def token_views(self) -> list[Tensor]:
        """The same, one token after the other: [num_blocks, 16 tokens, ...]; INT8 values [num_blocks, 4, 4, ...]."""
        heads, blocks = self.keys.shape[:2]
        size = self.spec.head_dim
        if self.keys.dtype == torch.float32:
            keys = self.keys.view(heads, blocks, size, BLOCK_SIZE).permute(1, 3, 0, 2)
            return [keys, self.values.view(heads, blocks, BLOCK_SIZE, size).permute(1, 2, 0, 3)]
        keys = self.keys.view(heads, blocks, size // 4, BLOCK_SIZE, 4).permute(1, 3, 0, 2, 4)
        values = self.values.view(heads, blocks, size // 16, 4, 16, 4).permute(1, 3, 5, 0, 2, 4)
        return [keys, values, self.key_scales.permute(1, 2, 0), self.value_scales.permute(1, 2, 0)]


class CpuKVPool:
    """All layers' KV, zeroed."""

    def __init__(self, specs: Sequence[AttentionSpec], num_blocks: int, kv_type: KVType) -> None:
        self.num_blocks = num_blocks
        self.block_size = BLOCK_SIZE
        self._layers = [CpuLayerKV(spec, num_blocks, kv_type) for spec in specs]
        self.structs = (LayerStruct * len(specs))(*(layer.struct for layer in self._layers))

    @property
    def num_bytes(self) -> int:
        return sum(tensor.nbytes for layer in self._layers for tensor in layer.tensors)

    def layer(self, index: int) -> CpuLayerKV:
        return self._layers[index]

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy (source, destination) blocks in every layer, scales and all."""
        if not pairs:
            return
        sources, targets = (torch.tensor(side) for side in zip(*pairs, strict=True))
        for layer in self._layers:
            for stored in layer.tensors:
                stored[:, targets] = stored[:, sources]

    @property
    def layout(self) -> str:
        scaled = bool(self._layers[0].key_scales.numel())
        return "int8 with brain float scales, keys spread and raised by 128" if scaled else "float32"

    @property
    def token_bytes(self) -> int:
        return kv_tokens.token_bytes(self._views, BLOCK_SIZE)

    def read_tokens(self, slots: Sequence[int]) -> bytes:
        return kv_tokens.read_tokens(self._views, BLOCK_SIZE, slots)

    def write_tokens(self, slots: Sequence[int], data: bytes) -> None:
        kv_tokens.write_tokens(self._views, BLOCK_SIZE, slots, data)

    @property
    def _views(self) -> list[Tensor]:
        return [view for layer in self._layers for view in layer.token_views]
