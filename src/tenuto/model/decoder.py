"""One decoder over a ragged batch: every step is one forward call, whatever the mix of its tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from tenuto.checkpoint import ModelConfig
from tenuto.device.protocol import AttentionSpec, Device, FusedLayers, KVPool, LinearWeight, RotaryTable, Step
from tenuto.device.ragged import RaggedBatch
from tenuto.model.layers import DecoderLayer, InputEmbedding, Norm


class Rows(NamedTuple):
    """What the sequences of a step wanted of their tokens."""

    logits: Tensor  # float32 [R, vocab]
    hidden: Tensor | None  # float32 [H, hidden]; None if no rows were wanted


@dataclass(frozen=True)
class Decoder:
    """A loaded model. It holds no state of any sequence: all of that is in the KV pool."""

    config: ModelConfig
    device: Device
    embedding: InputEmbedding
    layers: tuple[DecoderLayer, ...]
    norm: Norm
    head: LinearWeight
    rotary: tuple[RotaryTable, ...]

    @cached_property
    def attention_specs(self) -> tuple[AttentionSpec, ...]:
        """What each layer keeps in the KV pool."""
        return tuple(layer.attention.spec for layer in self.layers)

    def kv_bytes_per_token(self) -> int:
        """Bytes of KV that one token takes in all layers together."""
        return self.device.kv_bytes_per_token(self.attention_specs)

    def allocate_kv(self, num_blocks: int) -> KVPool:
        """The one pool of an engine, preallocated and zeroed."""
        return self.device.allocate_kv(self.attention_specs, num_blocks)

    def forward(self, batch: RaggedBatch, kv: KVPool) -> Tensor:
        """The logits of `compute`: float32 [R, vocab]; R may be 0."""
        return self.compute(batch, kv).logits

    @torch.inference_mode()
    def compute(self, batch: RaggedBatch, kv: KVPool) -> Rows:
        """Compute a step: KV of all T tokens is written, what is wanted of the rows comes back."""
        _check(batch, self.config.max_model_tokens)
        step = self.device.begin_step(batch, self.rotary, kv)
        x, residual = self._through_layers(self.embedding(batch.token_ids), kv, step)
        logits = self.device.linear(self._normed(x, residual, batch.logit_rows), self.head).float()
        rows = batch.hidden_rows
        return Rows(logits, None if rows is None else self._normed(x, residual, rows).float())

    @cached_property
    def _fused(self) -> FusedLayers | None:
        weights = [layer.weights for layer in self.layers]
        plain = [each for each in weights if each is not None]
        return self.device.fuse(plain) if len(plain) == len(weights) else None

    def _through_layers(self, x: Tensor, kv: KVPool, step: Step) -> tuple[Tensor, Tensor | None]:
        """(x, residual) whose sum is the residual stream after the last layer."""
        if self._fused is not None:
            return self._fused(x, kv, step), None
        residual = None
        for index, layer in enumerate(self.layers):
            x, residual = layer(x, residual, kv.layer(index), step)
        return x, residual

    def _normed(self, x: Tensor, residual: Tensor | None, rows: Tensor) -> Tensor:
        some = x.index_select(0, rows)
        return self.norm(some) if residual is None else self.norm.add(some, residual.index_select(0, rows))[0]


def _check(batch: RaggedBatch, max_model_tokens: int) -> None:
    """What the executor must have got right, as far as it costs nothing to see."""
    num_tokens = batch.token_ids.shape[0]
    assert batch.positions.shape == batch.slots.shape == (num_tokens,)
    assert batch.query_starts[0] == 0 and batch.query_starts[-1] == num_tokens
    assert len(batch.query_starts) == len(batch.kv_lens) + 1 == batch.block_tables.shape[0] + 1
    assert max(batch.kv_lens) <= max_model_tokens, "a sequence outgrew the model's context"
