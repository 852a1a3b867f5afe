"""Sampling on a real decoder: the same in any company, log-probabilities of the model's own logits, greedy decoding
with penalties as `transformers` generates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tenuto.checkpoint import open_checkpoint
from tenuto.device import ReferenceDevice
from tenuto.engine import Engine, EngineConfig
from tenuto.engine.executor import ModelExecutor
from tenuto.ids import RequestId, SessionId, TokenId
from tenuto.model import Decoder, load_model
from tenuto.protocol.engine import FORCED_LOGPROB, GenerateParams, SamplingParams, TokenLogprob
from tenuto.testing.fake_grammar import PatternGrammar
from tiny_models import TinyLlama, write_hf

TINY = TinyLlama()
PROMPT = [i * 7 % 60 for i in range(21)]


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    directory: Path = tmp_path_factory.mktemp("tiny")
    write_hf(directory, TINY, TINY.weights())
    return load_model(open_checkpoint(directory), ReferenceDevice("fp32"))


@pytest.fixture(scope="module")
def oracle() -> LlamaForCausalLM:
    model = LlamaForCausalLM(LlamaConfig(**TINY.hf_config())).eval()
    model.load_state_dict({name: torch.from_numpy(values) for name, values in TINY.weights().items()})
    return model


class Rig:
    """An engine on a decoder, stepped by hand."""

    def __init__(self, decoder: Decoder, num_blocks: int = 64, **changes: Any) -> None:
        sizes = {"max_batch_tokens": 64, "max_chunk_tokens": 32, "max_running": 8, "max_model_tokens": 500}
        block_size = decoder.device.block_size
        config = EngineConfig(num_blocks=num_blocks, block_size=block_size, vocab_size=64, **{**sizes, **changes})
        self.engine = Engine(config)
        self.executor = ModelExecutor(decoder, num_blocks)
        self.ids: dict[RequestId, list[int]] = {}
        self.logprobs: dict[RequestId, list[TokenLogprob]] = {}
        self.num_opened = 0

    def generate(
        self,
        ids: Sequence[int],
        params: GenerateParams,
        *,
        parent: str | None = None,
        grammar: PatternGrammar | None = None,
    ) -> RequestId:
        """In a session of its own."""
        self.num_opened += 1
        session = SessionId(f"s{self.num_opened}")
        self.engine.open(session, 0.0, parent=None if parent is None else SessionId(parent))
        request = self.engine.generate(session, [TokenId(i) for i in ids], params, 0.0, grammar)
        self.ids[request], self.logprobs[request] = [], []
        self._take(self.engine.take_deltas())
        return request

    def run(self) -> None:
        while (batch := self.engine.schedule(0.0)) is not None:
            self._take(self.engine.commit(batch, self.executor.execute(batch), 0.0))

    def _take(self, deltas: Sequence[Any]) -> None:
        for delta in deltas:
            assert delta.error is None and delta.tokens is not None
            self.ids[delta.request] += delta.tokens.ids
            self.logprobs[delta.request] += delta.tokens.logprobs


KINDS = [
    SamplingParams(repetition_penalty=1.4),
    SamplingParams(temperature=1.0, seed=3, frequency_penalty=0.4, presence_penalty=0.3),
    SamplingParams(temperature=0.8, min_p=0.05, repetition_penalty=1.2, seed=4, logit_bias=((TokenId(5), 3.0),)),
    SamplingParams(temperature=1.3, top_k=8, top_p=0.9, seed=5),
    SamplingParams(),
]


def outputs(decoder: Decoder, *, alone: bool, **changes: Any) -> tuple[list[list[int]], list[list[TokenLogprob]], Rig]:
    rig = Rig(decoder, **changes)
    requests = []
    for index, sampling in enumerate(KINDS):
        params = GenerateParams(max_tokens=30, sampling=sampling, logprobs=3)
        requests.append(rig.generate([(index * 5 + i) % 60 for i in range(10 + 7 * index)], params))
        if alone:
            rig.run()
    rig.run()
    return [rig.ids[r] for r in requests], [rig.logprobs[r] for r in requests], rig


def test_batched_chunked_and_preempted_equal_alone(decoder: Decoder) -> None:
    assert decoder.device.row_invariant, "the tiny model's products pass the probe"
    ids, logprobs, _ = outputs(decoder, alone=True, prefix_cache=False)
    for prefix_cache, num_blocks in ((False, 8), (True, 8), (True, 64)):
        sizes = {"num_blocks": num_blocks, "prefix_cache": prefix_cache, "max_chunk_tokens": 7}
        found, scored, rig = outputs(decoder, alone=False, **sizes)
        assert found == ids
        assert scored == logprobs, "to the bit"
        assert (rig.engine.counters().num_preemptions > 0) == (num_blocks == 8)


def test_penalties_of_a_fork_are_those_of_a_session_of_its_own(decoder: Decoder) -> None:
    rig = Rig(decoder)
    rig.generate(PROMPT, GenerateParams(max_tokens=6))
    rig.run()
    rig.engine.truncate(SessionId("s1"), len(PROMPT) + 4, 0.0)
    tokens = rig.engine.tokens(SessionId("s1"))
    for sampling in KINDS[:3]:
        params = GenerateParams(max_tokens=12, sampling=sampling)
        fork = rig.generate([], params, parent="s1")
        own = rig.generate(tokens, params)
        rig.run()
        assert rig.ids[fork] == rig.ids[own]


@pytest.mark.parametrize("sampling", KINDS[:3])
def test_log_probabilities_are_the_references(
    decoder: Decoder, oracle: LlamaForCausalLM, sampling: SamplingParams
) -> None:
    rig = Rig(decoder)
    request = rig.generate(PROMPT, GenerateParams(max_tokens=25, sampling=sampling, logprobs=20))
    rig.run()
    ids = rig.ids[request]
    with torch.inference_mode():
        wanted = torch.log_softmax(oracle(torch.tensor([[*PROMPT, *ids]])).logits[0].double(), -1)[len(PROMPT) - 1 : -1]
    assert len(rig.logprobs[request]) == len(ids) == 25
    for token, score, row in zip(ids, rig.logprobs[request], wanted, strict=True):
        assert score.logprob == pytest.approx(float(row[token]), abs=1e-4)
        values = row.sort(descending=True).values[:20]
        assert [value for _, value in score.top] == pytest.approx(values.tolist(), abs=1e-4)
        assert [float(row[other]) for other, _ in score.top] == pytest.approx(values.tolist(), abs=1e-4)


@pytest.mark.parametrize("penalty", [0.7, 1.0, 1.3, 2.5])
def test_greedy_decoding_with_a_repetition_penalty_is_transformers(
    decoder: Decoder, oracle: LlamaForCausalLM, penalty: float
) -> None:
    rig = Rig(decoder)
    sampling = SamplingParams(repetition_penalty=penalty)
    request = rig.generate(PROMPT, GenerateParams(max_tokens=30, sampling=sampling))
    rig.run()
    prompt = torch.tensor([PROMPT])
    with torch.inference_mode():
        wanted = oracle.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=30,
            do_sample=False,
            repetition_penalty=penalty,
            eos_token_id=None,
            pad_token_id=0,
        )
    assert rig.ids[request] == wanted[0, len(PROMPT) :].tolist()


def test_forced_ids_are_certain_and_count_as_generated(decoder: Decoder) -> None:
    rig = Rig(decoder)
    places = [frozenset({5}), frozenset({6}), frozenset(range(10, 30)), frozenset({5}), frozenset({5, 7})]
    params = GenerateParams(
        max_tokens=9, sampling=SamplingParams(presence_penalty=2.0, logit_bias=((TokenId(5), 1.0),)), logprobs=1
    )
    request = rig.generate(PROMPT, params, grammar=PatternGrammar(places, 64))
    rig.run()
    assert [score == FORCED_LOGPROB for score in rig.logprobs[request]] == [True, True, False, True, False]
    sampled = rig.logprobs[request][2]
    assert 10 <= rig.ids[request][2] < 30 and sampled.logprob < 0
