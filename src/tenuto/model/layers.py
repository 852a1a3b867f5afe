"""The parts a decoder is composed of. Each is replaceable: what a layer needs of a part is one call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from tenuto.device.protocol import (
    Activation,
    AttentionSpec,
    Device,
    HeadTransform,
    LayerKV,
    LayerWeights,
    LinearWeight,
    Mixture,
    Step,
)


class InputEmbedding(Protocol):
    def __call__(self, token_ids: Tensor) -> Tensor:
        """int64 [T] -> [T, hidden]."""
        ...


class FeedForward(Protocol):
    def __call__(self, x: Tensor) -> Tensor:
        """[T, hidden] -> [T, hidden]."""
        ...


class TokenMixer(Protocol):
    """The part that reads other tokens; `spec` says what it keeps in the KV pool."""

    @property
    def spec(self) -> AttentionSpec: ...

    def __call__(self, x: Tensor, kv: LayerKV, step: Step) -> Tensor:
        """[T, hidden] -> [T, hidden]."""
        ...


@dataclass(frozen=True)
class TokenEmbedding:
    device: Device
    table: Tensor  # [vocab, hidden]
    scale: float = 1.0

    def __call__(self, token_ids: Tensor) -> Tensor:
        rows = self.device.embed(self.table, token_ids)
        return rows if self.scale == 1 else rows * self.scale


@dataclass(frozen=True)
class Norm:
    """RMS norm, alone or fused with the addition of a residual."""

    device: Device
    weight: Tensor  # [hidden]
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        return self.device.rms_norm(x, self.weight, self.eps)

    def add(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """(norm of x + residual, x + residual)."""
        return self.device.add_rms_norm(x, residual, self.weight, self.eps)


@dataclass(frozen=True)
class Attention:
    """Causal self-attention with grouped KV heads."""

    device: Device
    spec: AttentionSpec
    transform: HeadTransform
    qkv: LinearWeight
    output: LinearWeight

    def __call__(self, x: Tensor, kv: LayerKV, step: Step) -> Tensor:
        q = self.device.rotate_and_write(self.device.linear(x, self.qkv), kv, step, self.transform)
        return self.device.linear(self.device.attention(q, kv, step), self.output)


@dataclass(frozen=True)
class GatedMLP:
    device: Device
    gate_up: LinearWeight
    down: LinearWeight
    activation: Activation

    def __call__(self, x: Tensor) -> Tensor:
        inner = self.device.gated(self.device.linear(x, self.gate_up), self.activation)
        return self.device.linear(inner, self.down)


@dataclass(frozen=True)
class MixtureOfExperts:
    device: Device
    mixture: Mixture

    def __call__(self, x: Tensor) -> Tensor:
        return self.device.mixture(x, self.mixture)


@dataclass(frozen=True)
class DecoderLayer:
    """Pre-norm residual layer: x + attention(norm(x)), then x + mlp(norm(x)).

    Some families also norm what attention and MLP give, before it joins the residual.
    """

    attention_norm: Norm
    attention: TokenMixer
    mlp_norm: Norm
    mlp: FeedForward
    attention_post_norm: Norm | None = None
    mlp_post_norm: Norm | None = None

    def __call__(self, x: Tensor, residual: Tensor | None, kv: LayerKV, step: Step) -> tuple[Tensor, Tensor]:
        """Take and return (x, residual) whose sum is the residual stream, so that each addition fuses with a norm."""
        if residual is None:
            x, residual = self.attention_norm(x), x
        else:
            x, residual = self.attention_norm.add(x, residual)
        x = self.attention(x, kv, step)
        if self.attention_post_norm is not None:
            x = self.attention_post_norm(x)
        x, residual = self.mlp_norm.add(x, residual)
        x = self.mlp(x)
        if self.mlp_post_norm is not None:
            x = self.mlp_post_norm(x)
        return x, residual

    @property
    def weights(self) -> LayerWeights | None:
        """What a device needs to fuse the layer; None if it is not made of the plain parts."""
        attention, mlp = self.attention, self.mlp
        if not isinstance(attention, Attention) or not isinstance(mlp, GatedMLP):
            return None
        norms = (self.attention_norm, self.mlp_norm, self.attention_post_norm, self.mlp_post_norm)
        if any(norm is not None and norm.eps != self.mlp_norm.eps for norm in norms):
            return None
        return LayerWeights(
            spec=attention.spec,
            transform=attention.transform,
            attention_norm=self.attention_norm.weight,
            qkv=attention.qkv,
            output=attention.output,
            mlp_norm=self.mlp_norm.weight,
            gate_up=mlp.gate_up,
            down=mlp.down,
            activation=mlp.activation,
            eps=self.mlp_norm.eps,
            attention_post_norm=None if self.attention_post_norm is None else self.attention_post_norm.weight,
            mlp_post_norm=None if self.mlp_post_norm is None else self.mlp_post_norm.weight,
        )
