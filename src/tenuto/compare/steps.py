"""Forward calls of a decoder without an engine: every sequence has KV blocks of its own, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tenuto.device.protocol import Device, LinearWeight
from tenuto.device.ragged import Part, RaggedBatch
from tenuto.model import Decoder

CHUNK_TOKENS = 512  # of a text, computed in one call


@dataclass(frozen=True)
class Piece:
    """The next tokens of one sequence."""

    ids: Sequence[int]
    start: int = 0  # tokens of the sequence that are in KV already
    first_block: int = 0


def ragged(pieces: Sequence[Piece], block_size: int, *, hidden: bool = False) -> RaggedBatch:
    """One step over the pieces; each wants the hidden states of all its tokens, or the logits of its last."""
    parts = []
    for piece in pieces:
        num_blocks = -(-(piece.start + len(piece.ids)) // block_size)
        parts.append(Part(piece.ids, piece.start, range(piece.first_block, piece.first_block + num_blocks)))
    return RaggedBatch.of(parts, block_size, hidden=hidden)


def hidden_states(decoder: Decoder, ids: Sequence[int]) -> Iterator[Tensor]:
    """States after the last norm, float32 [n, hidden] a chunk, of a text computed in chunks as an engine would."""
    block_size = decoder.device.block_size
    kv = decoder.allocate_kv(-(-len(ids) // block_size))
    for start in range(0, len(ids), CHUNK_TOKENS):
        piece = Piece(ids[start : start + CHUNK_TOKENS], start)
        states = decoder.compute(ragged([piece], block_size, hidden=True), kv).hidden
        assert states is not None
        yield states


@torch.inference_mode()
def layer_states(decoder: Decoder, ids: Sequence[int]) -> list[Tensor]:
    """The residual stream, float32 [T, hidden]: after the embedding, then after each layer."""
    device = decoder.device
    kv = decoder.allocate_kv(-(-len(ids) // device.block_size))
    batch = ragged([Piece(ids)], device.block_size, hidden=True)
    step = device.begin_step(batch, decoder.rotary, kv)
    x, residual = decoder.embedding(batch.token_ids), None
    states = [x.float().clone()]
    for index, layer in enumerate(decoder.layers):
        x, residual = layer(x, residual, kv.layer(index), step)
        states.append(x.float() + residual.float())
    return states


@dataclass(frozen=True)
class Head:
    """What remains of a model that is no longer in memory: enough to make logits of recorded states."""

    device: Device
    weight: LinearWeight

    @classmethod
    def of(cls, decoder: Decoder) -> Head:
        return cls(decoder.device, decoder.head)

    @torch.inference_mode()
    def logits(self, states: Tensor) -> Tensor:
        """float32 [n, hidden] -> float32 [n, vocab]."""
        dtype = torch.bfloat16 if self.device.precision == "bf16" else torch.float32
        return self.device.linear(states.to(dtype), self.weight).float()
