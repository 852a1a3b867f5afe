"""A bidirectional encoder over a ragged batch of whole texts: BERT's post-norm layers (Devlin et al., 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from tenuto.checkpoint.encoders import EncoderConfig
from tenuto.checkpoint.encoders.config import PoolingName
from tenuto.device.protocol import Device, Floats, LinearWeight, Pointwise
from tenuto.model.pooling import pool


@dataclass(frozen=True)
class LayerNorm:
    device: Device
    weight: Tensor  # float32 [hidden]
    bias: Tensor
    eps: float

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """Norm of x + residual."""
        return self.device.add_layer_norm(x, residual, self.weight, self.bias, self.eps)


@dataclass(frozen=True)
class EncoderEmbedding:
    """Token + position + token type, normed."""

    device: Device
    words: Tensor  # [vocab, hidden]
    positions: Tensor  # [positions, hidden]
    types: Tensor  # [token types, hidden]
    norm: LayerNorm

    def __call__(self, token_ids: Tensor, positions: Tensor, type_ids: Tensor) -> Tensor:
        """int64 [T] each -> [T, hidden]."""
        embed = self.device.embed
        return self.norm.add(
            embed(self.words, token_ids) + embed(self.types, type_ids), embed(self.positions, positions)
        )


@dataclass(frozen=True)
class EncoderLayer:
    """Post-norm residual layer: x = norm(x + attention(x)), then x = norm(x + mlp(x))."""

    device: Device
    num_heads: int
    qkv: LinearWeight
    output: LinearWeight
    attention_norm: LayerNorm
    up: LinearWeight
    down: LinearWeight
    activation: Pointwise
    mlp_norm: LayerNorm

    def __call__(self, x: Tensor, starts: Sequence[int]) -> Tensor:
        """[T, hidden] -> [T, hidden]."""
        device = self.device
        attended = device.full_attention(device.linear(x, self.qkv), starts, self.num_heads)
        x = self.attention_norm.add(device.linear(attended, self.output), x)
        inner = device.activate(device.linear(x, self.up), self.activation)
        return self.mlp_norm.add(device.linear(inner, self.down), x)


@dataclass(frozen=True)
class ClassifierHead:
    """Scores of a text from its first token: linear, tanh, linear."""

    device: Device
    dense: LinearWeight
    out: LinearWeight

    def __call__(self, first: Tensor) -> Tensor:
        """[S, hidden] -> [S, labels]."""
        inner = self.device.activate(self.device.linear(first, self.dense), "tanh")
        return self.device.linear(inner, self.out)


@dataclass(frozen=True)
class Encoder:
    """A loaded encoder. A text is its token ids, special ones included, with a token type each."""

    config: EncoderConfig
    device: Device
    embedding: EncoderEmbedding
    layers: tuple[EncoderLayer, ...]
    head: ClassifierHead | None

    @torch.inference_mode()
    def hidden_states(self, ids: Sequence[Sequence[int]], types: Sequence[Sequence[int]]) -> tuple[Tensor, list[int]]:
        """All texts' last hidden states.

        Returns:
            float32 [T, hidden], and where the texts start: cumulative, one more than there are texts.
        """
        lengths = [len(text) for text in ids]
        assert lengths and min(lengths) > 0, "a text without tokens"
        assert max(lengths) <= self.config.max_model_tokens, "a text is longer than the model's positions"
        assert [len(text) for text in types] == lengths
        positions = [torch.arange(n) + self.config.position_offset for n in lengths]
        x = self.embedding(_flat(ids), torch.cat(positions), _flat(types))
        starts = [0, *accumulate(lengths)]
        for layer in self.layers:
            x = layer(x, starts)
        return x.float(), starts

    @torch.inference_mode()
    def pooled(
        self, ids: Sequence[Sequence[int]], types: Sequence[Sequence[int]], poolings: Sequence[PoolingName]
    ) -> Floats:
        """One vector a text, each pooled in its own way: float32 [S, hidden]."""
        return pool(*self.hidden_states(ids, types), poolings).numpy()

    @torch.inference_mode()
    def scores(self, ids: Sequence[Sequence[int]], types: Sequence[Sequence[int]]) -> Floats:
        """The classifier's raw outputs: float32 [S, labels]."""
        assert self.head is not None, "this encoder has no classifier"
        first = pool(*self.hidden_states(ids, types), ["first"] * len(ids))
        of_device = torch.bfloat16 if self.head.device.precision == "bf16" else torch.float32
        return self.head(first.to(of_device)).float().numpy()


def _flat(rows: Sequence[Sequence[int]]) -> Tensor:
    return torch.from_numpy(np.concatenate([np.asarray(row, dtype=np.int64) for row in rows]))
