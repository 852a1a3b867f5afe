"""The seam between model and chip.

The model calls these operations and no others on the hot path; a device may fuse, quantise and lay out memory
inside them as it likes. T is the number of tokens of a step, H and G the query and KV heads, D the head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from torch import Tensor

from tenuto.device.ragged import RaggedBatch

Precision: TypeAlias = Literal["fp32", "bf16"]
Floats: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True)
class AttentionSpec:
    """What one layer's attention needs of the KV pool. Layers with equal specs form a group."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    kind: Literal["full"] = "full"  # later kinds (window, recurrent state) add values here

    @property
    def group_size(self) -> int:
        """Query heads that share one KV head."""
        return self.num_heads // self.num_kv_heads


class LinearWeight(Protocol):
    """A matrix as its device wants it; made by `prepare_linear`, read only by that device."""

    @property
    def in_features(self) -> int: ...

    @property
    def out_features(self) -> int: ...


class LayerKV(Protocol):
    """The keys and values of one layer, in the device's own layout."""

    @property
    def spec(self) -> AttentionSpec: ...


class KVPool(Protocol):
    """All KV of one engine: preallocated once, addressed by block."""

    @property
    def num_blocks(self) -> int: ...

    @property
    def block_size(self) -> int: ...

    @property
    def num_bytes(self) -> int: ...

    def layer(self, index: int) -> LayerKV: ...


class Step(Protocol):
    """What all layers of one forward call share (index tensors, rotary angles), prepared once."""

    @property
    def batch(self) -> RaggedBatch: ...


class Device(Protocol):
    """A chip. Activations are [T, features] tensors in the device's precision."""

    @property
    def name(self) -> str: ...

    @property
    def precision(self) -> Precision: ...

    @property
    def block_size(self) -> int:
        """Token slots per KV block."""
        ...

    @property
    def row_invariant(self) -> bool:
        """A row's bits depend neither on the other rows, nor its place, nor on how its sequence is chunked."""
        ...

    def upload(self, values: Floats) -> Tensor:
        """A small weight (norm, embedding table) in the device's precision."""
        ...

    def prepare_linear(self, parts: Sequence[Floats]) -> LinearWeight:
        """Stack matrices [out_i, in] along `out` and bring them into the form `linear` wants."""
        ...

    def rotary_table(self, head_dim: int, theta: float, max_positions: int) -> Tensor:
        """Cosine and sine of every position: float32 [max_positions, 2, head_dim / 2]."""
        ...

    def kv_bytes_per_token(self, specs: Sequence[AttentionSpec]) -> int: ...

    def allocate_kv(self, specs: Sequence[AttentionSpec], num_blocks: int) -> KVPool:
        """One pool for all layers (`specs[i]` is layer i's), zeroed."""
        ...

    def copy_blocks(self, kv: KVPool, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks (source, destination) in all layers: copy-on-write. No block is in both roles."""
        ...

    def begin_step(self, batch: RaggedBatch, rotary: Tensor, kv: KVPool) -> Step: ...

    def embed(self, table: Tensor, token_ids: Tensor) -> Tensor:
        """Rows of the table: [V, features], int64 [T] -> [T, features]."""
        ...

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor: ...

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """`s = x + residual`; returns (norm of s, s)."""
        ...

    def linear(self, x: Tensor, weight: LinearWeight) -> Tensor:
        """[T, in] -> [T, out]."""
        ...

    def rotate_and_write(self, qkv: Tensor, layer: LayerKV, step: Step) -> Tensor:
        """Rotate Q and K by position and store K and V in the step's slots.

        Args:
            qkv: [T, (H + 2 G) * D], heads of Q, then K, then V.

        Returns:
            rotated Q, [T, H, D].
        """
        ...

    def attention(self, q: Tensor, layer: LayerKV, step: Step) -> Tensor:
        """Causal attention of [T, H, D] over each sequence's blocks, K and V read back as stored: [T, H * D]."""
        ...

    def swiglu(self, gate_up: Tensor) -> Tensor:
        """`silu(gate) * up`: [T, 2 n] (gate, then up) -> [T, n]."""
        ...
