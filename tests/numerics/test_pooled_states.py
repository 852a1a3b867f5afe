"""Pooled hidden states of decoders through the engine: `transformers`' last hidden states, whatever the steps were."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from tenuto.checkpoint import open_checkpoint
from tenuto.device import ReferenceDevice
from tenuto.engine import Engine, EngineConfig
from tenuto.engine.executor import ModelExecutor
from tenuto.ids import SessionId, TokenId
from tenuto.model import Decoder, load_model
from tenuto.protocol.engine import GenerateParams, GenerateUsage, Pooling
from tiny_models import TinyLlama, write_hf

POOLINGS: tuple[Pooling, ...] = ("first", "last", "mean")
TINY = TinyLlama(tied=True)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hf(tmp_path_factory.mktemp("tiny"), TINY, TINY.weights())


@pytest.fixture(scope="module")
def decoder(tiny: Path) -> Decoder:
    return load_model(open_checkpoint(tiny), ReferenceDevice())


class Rig:
    """An engine stepped by hand."""

    def __init__(self, decoder: Decoder, chunk: int = 32, num_blocks: int = 64) -> None:
        self.engine = Engine(
            EngineConfig(
                num_blocks=num_blocks,
                vocab_size=decoder.config.vocab_size,
                max_model_tokens=800,
                max_batch_tokens=64,
                max_chunk_tokens=chunk,
                policy="fcfs",
            )
        )
        self.executor = ModelExecutor(decoder, num_blocks)
        self.num_sessions = 0

    def open(self) -> SessionId:
        self.num_sessions += 1
        session = SessionId(f"s{self.num_sessions}")
        self.engine.open(session, 0.0)
        return session

    def generate(self, ids: Sequence[int], max_tokens: int) -> None:
        self.engine.generate(self.open(), [TokenId(i) for i in ids], GenerateParams(max_tokens=max_tokens), 0.0)

    def embed(self, texts: Sequence[Sequence[int]], pooling: Pooling) -> tuple[list[np.ndarray], list[GenerateUsage]]:
        """All at once."""
        requests = [self.engine.embed(self.open(), [TokenId(i) for i in ids], pooling, 0.0) for ids in texts]
        done = {}
        while (batch := self.engine.schedule(0.0)) is not None:
            for delta in self.engine.commit(batch, self.executor.execute(batch), 0.0):
                assert delta.error is None
                if delta.pooled is not None and delta.tokens is not None and delta.tokens.usage is not None:
                    done[delta.request] = (delta.pooled, delta.tokens.usage)
        return [done[r][0] for r in requests], [done[r][1] for r in requests]


def some_ids(count: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, TINY.vocab_size, count).tolist()


def naive(states: torch.Tensor, pooling: Pooling) -> np.ndarray:
    return {"first": states[0], "last": states[-1], "mean": states.sum(0) / len(states)}[pooling].numpy()


@pytest.mark.parametrize("pooling", POOLINGS)
def test_they_are_the_oracles(tiny: Path, decoder: Decoder, pooling: Pooling) -> None:
    model = LlamaForCausalLM.from_pretrained(tiny, dtype=torch.float32).eval().model
    texts = [some_ids(count, seed) for seed, count in enumerate((1, 16, 17, 300))]
    vectors, _ = Rig(decoder).embed(texts, pooling)
    for ids, vector in zip(texts, vectors, strict=True):
        with torch.inference_mode():
            states = model(torch.tensor([ids])).last_hidden_state[0]
        np.testing.assert_allclose(vector, naive(states, pooling), atol=1e-4, rtol=0)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_the_same_bits_alone_in_chunks_and_beside_generation(decoder: Decoder, pooling: Pooling) -> None:
    assert decoder.device.row_invariant
    texts = [some_ids(count, seed) for seed, count in enumerate((5, 70))]
    alone = [Rig(decoder, chunk=32).embed([ids], pooling)[0][0].tobytes() for ids in texts]
    for chunk in (3, 64):
        busy = Rig(decoder, chunk=chunk)
        busy.generate(some_ids(30, 9), 12)
        together, _ = busy.embed(texts, pooling)
        assert [vector.tobytes() for vector in together] == alone


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_cached_prefix_changes_no_bit(decoder: Decoder, pooling: Pooling) -> None:
    rig, ids = Rig(decoder), some_ids(100, 3)
    (cold,), _ = rig.embed([ids], pooling)
    (warm,), (usage,) = rig.embed([ids], pooling)
    assert usage.num_shared == (96 if pooling == "last" else 0)
    assert warm.tobytes() == cold.tobytes()


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_preemption_changes_no_bit(decoder: Decoder, pooling: Pooling) -> None:
    ids = some_ids(80, 4)
    (free,), _ = Rig(decoder).embed([ids], pooling)
    rig = Rig(decoder, chunk=1, num_blocks=9)
    rig.generate(some_ids(20, 5), 60)
    (pressed,), _ = rig.embed([ids], pooling)
    assert rig.engine.counters().num_preemptions > 0
    assert pressed.tobytes() == free.tobytes()
