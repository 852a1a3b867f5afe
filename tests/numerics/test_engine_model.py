"""The engine on a real decoder: held equals cold, batched equals alone, preempted equals not, one forward a step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from family_models import FAMILY_MODELS, FamilyModel, make, save
from ragged_batches import Query, ragged
from tenuto.checkpoint import open_checkpoint
from tenuto.device import ReferenceDevice
from tenuto.engine import Batch, Engine, EngineConfig, Output
from tenuto.engine.executor import ModelExecutor
from tenuto.ids import RequestId, SessionId, TokenId
from tenuto.model import Decoder, RaggedBatch, load_model
from tenuto.model.decoder import Rows
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

    def compute(self, batch: RaggedBatch, kv: Any) -> Rows:
        self.num_forwards += 1
        return self.inner.compute(batch, kv)


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


@pytest.fixture(scope="module", params=["llama", "gemma3", "qwen3-moe"])
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    """A plain model, one of windowed and global layers (B26), and one of experts."""
    directory: Path = tmp_path_factory.mktemp("tiny")
    if request.param == "llama":
        write_hf(directory, TinyLlama(), TinyLlama().weights())
    else:
        save(make(FAMILY_MODELS[request.param]), directory)
    return load_model(open_checkpoint(directory), ReferenceDevice("fp32"))


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


@pytest.mark.parametrize("num_prompt", [7, 8, 9, 16, 17, 31, 32, 33])
def test_prompts_around_window_and_block_match_one_forward_over_everything(windowed: Decoder, num_prompt: int) -> None:
    """B21, B26: cold, found in the prefix cache, and again after its first blocks were evicted."""
    prompt = [(i * 11) % 60 + 3 for i in range(num_prompt)]
    wanted = naive_greedy(windowed, prompt, 3)
    rig = Rig(windowed, num_blocks=8)
    for number in range(4):
        session = SessionId(f"s{number}")
        rig.engine.open(session, 0.0)
        request = rig.generate(session, prompt, GenerateParams(max_tokens=3))
        rig.run()
        assert rig.ids[request] == wanted
        if number in (1, 2):
            assert rig.usage[request].num_shared == (num_prompt - 1) // 16 * 16
        rig.engine.close(session, 0.0)
        if number == 2:  # others need the room of the cached prefix
            rig.engine.open(A, 0.0)
            rig.generate(A, range(3, 93), GenerateParams(max_tokens=38))
            rig.run()
            rig.engine.close(A, 0.0)
            assert rig.engine.counters().num_evictions > 0 or num_prompt + 3 <= 16, "nothing was cached"


@pytest.fixture(scope="module")
def windowed(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    """Windows of 8 and one global layer."""
    shape = FAMILY_MODELS["gemma3"]
    settings = shape.settings | {"sliding_window": 8, "num_hidden_layers": 3}
    settings["layer_types"] = ["sliding_attention", "full_attention", "sliding_attention"]
    directory: Path = tmp_path_factory.mktemp("windowed")
    save(make(FamilyModel(shape.model_type, settings)), directory)
    return load_model(open_checkpoint(directory), ReferenceDevice("fp32"))


def naive_greedy(decoder: Decoder, prompt: Sequence[int], count: int) -> list[int]:
    """Everything again for each token, in one chunk, without an engine."""
    ids = list(prompt)
    for _ in range(count):
        batch = ragged([Query(ids, 0, list(range(1, 8)))])
        ids.append(int(decoder.forward(batch, decoder.allocate_kv(8)).argmax()))
    return ids[len(prompt) :]
