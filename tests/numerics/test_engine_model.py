"""The engine on a real decoder: held equals cold, batched equals alone, preempted equals not, one forward a step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from tenuto.checkpoint import open_checkpoint
from tenuto.device import ReferenceDevice
from tenuto.engine import Batch, Engine, EngineConfig, Output
from tenuto.engine.executor import ModelExecutor
from tenuto.ids import RequestId, SessionId, TokenId
from tenuto.model import Decoder, RaggedBatch, load_model
from tenuto.protocol.engine import GenerateParams, GenerateUsage, SamplingParams
from tiny_models import TinyLlama, write_hf

A = SessionId("a")


class CountingDecoder:
    """A decoder that counts its forward calls."""

    def __init__(self, decoder: Decoder) -> None:
        self.inner = decoder
        self.device = decoder.device
        self.num_forwards = 0

    def allocate_kv(self, num_blocks: int) -> Any:
        return self.inner.allocate_kv(num_blocks)

    def forward(self, batch: RaggedBatch, kv: Any) -> torch.Tensor:
        self.num_forwards += 1
        return self.inner.forward(batch, kv)


class Rig:
    """An engine on a decoder, stepped by hand."""

    def __init__(self, decoder: Decoder, num_blocks: int = 64, **changes: Any) -> None:
        self.decoder = CountingDecoder(decoder)
        sizes = {"max_batch_tokens": 64, "max_chunk_tokens": 32, "max_running": 8}
        config = EngineConfig(
            num_blocks=num_blocks,
            block_size=decoder.device.block_size,
            vocab_size=decoder.config.vocab_size,
            max_model_tokens=min(1000, decoder.config.max_model_tokens),
            **{**sizes, **changes},
        )
        self.engine = Engine(config)
        self.executor = ModelExecutor(self.decoder, num_blocks)  # type: ignore[arg-type]
        self.ids: dict[RequestId, list[int]] = {}
        self.usage: dict[RequestId, GenerateUsage] = {}
        self.batches: list[Batch] = []

    def generate(self, session: str, ids: Sequence[int], params: GenerateParams) -> RequestId:
        request = self.engine.generate(SessionId(session), [TokenId(i) for i in ids], params, 0.0)
        self.ids[request] = []
        return request

    def run(self) -> None:
        while (batch := self.engine.schedule(0.0)) is not None:
            before = self.decoder.num_forwards
            output: Output = self.executor.execute(batch)
            assert self.decoder.num_forwards == before + 1, "one forward per step, whatever the mix"
            self.batches.append(batch)
            for delta in self.engine.commit(batch, output, 0.0):
                assert delta.error is None and delta.tokens is not None
                self.ids[delta.request] += delta.tokens.ids
                if delta.tokens.usage is not None:
                    self.usage[delta.request] = delta.tokens.usage
            self.engine.check_invariants()


def eight_turns(decoder: Decoder, prompt: Sequence[int], turn: Sequence[int], max_tokens: int) -> None:
    rig, cold = Rig(decoder), Rig(decoder)
    params = GenerateParams(max_tokens=max_tokens)
    rig.engine.open(A, 0.0)
    for number in range(8):
        appended = prompt if number == 0 else turn
        computed = rig.engine.counters().num_computed_tokens
        request = rig.generate(A, appended, params)
        prefix = rig.engine.tokens(A)
        rig.run()
        usage = rig.usage[request]
        new = len(appended) + (1 if number else 0)
        assert usage.num_computed == new
        assert rig.engine.counters().num_computed_tokens - computed == new + max_tokens - 1
        session = SessionId(f"cold{number}")
        cold.engine.open(session, 0.0)
        cold.engine.start_epoch(0.0)  # nothing cached: an empty session
        again = cold.generate(session, prefix, params)
        cold.run()
        assert cold.usage[again].num_computed == len(prefix)
        assert cold.ids[again] == rig.ids[request]
        cold.engine.close(session, 0.0)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    model = TinyLlama()
    path: Path = write_hf(tmp_path_factory.mktemp("tiny"), model, model.weights())
    return load_model(open_checkpoint(path), ReferenceDevice("fp32"))


def test_continuation_equals_prefill_into_an_empty_session(tiny: Decoder) -> None:
    eight_turns(tiny, [i * 7 % 60 for i in range(45)], [3, 1, 4, 1, 5, 9, 2, 6, 5], 8)


@pytest.mark.model
def test_continuation_on_the_embedded_model(embedded_model_path: Path) -> None:
    decoder = load_model(open_checkpoint(embedded_model_path), ReferenceDevice("fp32"))
    eight_turns(decoder, [1, 4093, 198, 1780, 314, 260, 5423, 281, 20421, 1834, 47, 2, 198], [1, 520, 9531, 198], 2)


KINDS = [
    SamplingParams(),
    SamplingParams(temperature=1.0, seed=3),
    SamplingParams(temperature=0.8, top_k=8, top_p=0.9, seed=4),
]


def outputs(decoder: Decoder, *, alone: bool, **changes: Any) -> tuple[list[list[int]], Rig]:
    rig = Rig(decoder, **changes)
    requests = []
    for index in range(3):
        rig.engine.open(SessionId(f"s{index}"), 0.0)
        params = GenerateParams(max_tokens=40, sampling=KINDS[index % 3])
        requests.append(rig.generate(f"s{index}", [(index * 5 + i) % 60 for i in range(10 + 9 * index)], params))
        if alone:
            rig.run()
    rig.run()
    return [rig.ids[r] for r in requests], rig


def test_batched_chunked_and_preempted_equal_alone(tiny: Decoder) -> None:
    assert tiny.device.row_invariant, "the tiny model's products pass the probe"
    wanted, _ = outputs(tiny, alone=True, prefix_cache=False)
    for prefix_cache, num_blocks in ((False, 8), (True, 8), (True, 64)):
        sizes = {"num_blocks": num_blocks, "prefix_cache": prefix_cache, "max_chunk_tokens": 7}
        found, rig = outputs(tiny, alone=False, **sizes)
        assert found == wanted
        assert (rig.engine.counters().num_preemptions > 0) == (num_blocks == 8)
        mixed = [{len(s.token_ids) > 1 for s in b.slices} for b in rig.batches]
        assert {True, False} in mixed, "some step mixed prefill chunks and decodes"


def test_forks_of_one_session_equal_sessions_of_their_own(tiny: Decoder) -> None:
    rig, own = Rig(tiny), Rig(tiny, prefix_cache=False)
    params = GenerateParams(max_tokens=15, sampling=KINDS[1])
    rig.engine.open(A, 0.0)
    rig.generate(A, range(21), GenerateParams(max_tokens=2))
    rig.run()
    requests = []
    for index in range(3):
        child = SessionId(f"child{index}")
        rig.engine.open(child, 0.0, parent=A)
        requests.append(rig.generate(child, [index, 40 + index], params))
    rig.run()
    assert rig.engine.counters().num_copies > 0
    for index, request in enumerate(requests):
        own.engine.open(SessionId(f"own{index}"), 0.0)
        again = own.generate(f"own{index}", [*rig.engine.tokens(A), index, 40 + index], params)
        own.run()
        assert own.ids[again] == rig.ids[request]
