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

Precision: TypeAlias = Literal["fp32", "bf16", "int8", "int4"]  # int4: of weights; all else as with int8
KVType: TypeAlias = Literal["float", "int8"]  # as the activations, or INT8 with a two-byte scale per token and head
Activation: TypeAlias = Literal["silu", "gelu_tanh"]
Pointwise: TypeAlias = Literal["gelu", "gelu_tanh", "tanh"]  # gelu: x * normal_cdf(x); the other its tanh form
Floats: TypeAlias = npt.NDArray[np.float32]

INTEGERS: frozenset[Precision] = frozenset({"int8", "int4"})  # precisions whose products are of integers


@dataclass(frozen=True)
class AttentionSpec:
    """What one layer's attention needs of the KV pool. Layers with equal specs form a group."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    window: int | None = None  # a token sees itself and the `window - 1` tokens before it; None: all before it
    scale: float | None = None  # of scores; None: 1 / sqrt(head_dim)

    @property
    def group_size(self) -> int:
        """Query heads that share one KV head."""
        return self.num_heads // self.num_kv_heads

    @property
    def score_scale(self) -> float:
        return self.head_dim**-0.5 if self.scale is None else self.scale


@dataclass(frozen=True)
class HeadTransform:
    """What is done to the heads of Q and K before they are used: an RMS norm, if any, then the rotation, if any."""

    rotary: int | None = 0  # which of the step's rotary tables; None: no positions
    q_norm: Tensor | None = None  # float32 [D], see `upload_norm`
    k_norm: Tensor | None = None
    eps: float = 1e-6


@dataclass(frozen=True)
class Expert:
    """One MLP of a mixture."""

    gate_up: LinearWeight
    down: LinearWeight


@dataclass(frozen=True)
class Mixture:
    """A router and its experts."""

    router: LinearWeight  # [hidden] -> [experts]
    experts: tuple[Expert, ...]
    num_active: int
    normalise: bool  # the weights of the chosen experts sum to 1
    activation: Activation


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


@dataclass(frozen=True)
class LayerWeights:
    """A decoder layer of the plain kind: x += attention(norm(x)), then x += mlp(norm(x)).

    Attention is `linear(attention(rotate_and_write(linear(x, qkv))), output)`, the MLP `linear(gated(linear(x,
    gate_up)), down)`; what they give is normed too where there is a post norm.
    """

    spec: AttentionSpec
    transform: HeadTransform
    attention_norm: Tensor
    qkv: LinearWeight
    output: LinearWeight
    mlp_norm: Tensor
    gate_up: LinearWeight
    down: LinearWeight
    activation: Activation
    eps: float  # of all norms but those of heads
    attention_post_norm: Tensor | None = None
    mlp_post_norm: Tensor | None = None


class FusedLayers(Protocol):
    """Several layers as one operation, with the results of the single ones."""

    def __call__(self, x: Tensor, kv: KVPool, step: Step) -> Tensor:
        """The residual stream [T, hidden] before the layers -> after them; may be changed in place."""
        ...


class KVPool(Protocol):
    """All KV of one engine: preallocated once, addressed by block."""

    @property
    def num_blocks(self) -> int: ...

    @property
    def block_size(self) -> int: ...

    @property
    def num_bytes(self) -> int: ...

    @property
    def layout(self) -> str:
        """What the bytes of `read_tokens` mean: they may be written to every pool of the same name for this model."""
        ...

    @property
    def token_bytes(self) -> int:
        """Length of one token's KV in `read_tokens`."""
        ...

    def layer(self, index: int) -> LayerKV: ...

    def read_tokens(self, slots: Sequence[int]) -> bytes:
        """The KV of single tokens, scales included, one after the other.

        Args:
            slots: block * block_size + place in the block.
        """
        ...

    def write_tokens(self, slots: Sequence[int], data: bytes) -> None:
        """The reverse. Raises ValueError, with nothing written, for numbers that are not finite."""
        ...


class RotaryTable(Protocol):
    """Cosine and sine of every position, in the device's own form."""

    @property
    def max_positions(self) -> int: ...


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
        """An embedding table in the device's precision."""
        ...

    def upload_norm(self, values: Floats) -> Tensor:
        """The weight of a norm. It is small, and multiplied in float32: it stays so."""
        ...

    def prepare_linear(
        self, parts: Sequence[Floats], biases: Sequence[Floats] = (), *, exact: bool = False
    ) -> LinearWeight:
        """Stack matrices [out_i, in], and biases [out_i] if any, along `out`; bring them into `linear`'s form.

        Args:
            exact: errors in this one do more harm than others': INT4 keeps it in INT8.
        """
        ...

    def rotary_table(self, inverse_frequencies: Tensor, scale: float, max_positions: int) -> RotaryTable:
        """Angles are position * frequency.

        Args:
            inverse_frequencies: float32 [D / 2], radians per position.
            scale: of cosine and sine.
        """
        ...

    def kv_bytes_per_token(self, specs: Sequence[AttentionSpec]) -> int: ...

    def allocate_kv(self, specs: Sequence[AttentionSpec], num_blocks: int) -> KVPool:
        """One pool for all layers (`specs[i]` is layer i's), zeroed."""
        ...

    def copy_blocks(self, kv: KVPool, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks (source, destination) in all layers: copy-on-write. No block is in both roles."""
        ...

    def begin_step(self, batch: RaggedBatch, rotary: Sequence[RotaryTable], kv: KVPool) -> Step: ...

    def embed(self, table: Tensor, token_ids: Tensor) -> Tensor:
        """Rows of the table: [V, features], int64 [T] -> [T, features]."""
        ...

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor: ...

    def add_rms_norm(self, x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """`s = x + residual`; returns (norm of s, s)."""
        ...

    def linear(self, x: Tensor, weight: LinearWeight) -> Tensor:
        """[T, in] -> [T, out], the bias added if there is one."""
        ...

    def rotate_and_write(self, qkv: Tensor, layer: LayerKV, step: Step, transform: HeadTransform) -> Tensor:
        """Norm and rotate Q and K, and store K and V in the step's slots.

        Args:
            qkv: [T, (H + 2 G) * D], heads of Q, then K, then V.

        Returns:
            transformed Q, [T, H, D].
        """
        ...

    def attention(self, q: Tensor, layer: LayerKV, step: Step) -> Tensor:
        """Causal attention of [T, H, D] over each sequence's blocks, K and V read back as stored: [T, H * D]."""
        ...

    def gated(self, gate_up: Tensor, activation: Activation) -> Tensor:
        """`activation(gate) * up`: [T, 2 n] (gate, then up) -> [T, n]."""
        ...

    def mixture(self, x: Tensor, mixture: Mixture) -> Tensor:
        """Each token through the experts its router likes best, weighted by the router's softmax: [T, hidden]."""
        ...

    def fuse(self, layers: Sequence[LayerWeights]) -> FusedLayers | None:
        """All layers of a decoder as one operation; None: the model calls the single ones."""
        ...

    # Encoders

    def add_layer_norm(self, x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        """Layer norm of `x + residual`; weight and bias from `upload_norm`."""
        ...

    def activate(self, x: Tensor, function: Pointwise) -> Tensor:
        """[T, n] -> [T, n]."""
        ...

    def full_attention(self, qkv: Tensor, starts: Sequence[int], num_heads: int) -> Tensor:
        """Each text's tokens over all tokens of that text, scores scaled by 1 / sqrt(D): [T, H * D].

        Args:
            qkv: [T, 3 * H * D], heads of Q, then K, then V.
            starts: cumulative: text s has rows starts[s] to [s + 1].
        """
        ...
