"""Speculation on a real decoder: the same ids and the same log-probabilities as without, in fewer steps.

On devices whose rows do not depend on each other, as the native one's must not.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from embedded_tokenizer import embedded_tokenizer
from family_models import FAMILY_MODELS, make, save
from tenuto.checkpoint import open_checkpoint
from tenuto.device import choose_device
from tenuto.device.cpu import native_library
from tenuto.engine import Engine, EngineConfig
from tenuto.engine.draft_policy import UNKNOWN, Estimate
from tenuto.engine.executor import ModelExecutor
from tenuto.ids import RequestId, SessionId, TokenId
from tenuto.model import Decoder, load_model
from tenuto.protocol.engine import GenerateParams, SamplingParams, TokenLogprob
from tenuto.protocol.grammar import GrammarSpec, TokenGrammar
from tenuto.testing.fake_grammar import PatternGrammar
from tenuto.text.grammar import LLGuidanceCompiler
from tiny_models import TinyLlama, write_hf

SURE = tuple(Estimate(0.99, 16) for _ in UNKNOWN)
"""As if all guesses had been right so far: many drafts, many of them wrong."""


class Rig:
    """An engine on a decoder, stepped by hand."""

    def __init__(self, decoder: Decoder, speculation: str, **changes: Any) -> None:
        sizes = {"max_batch_tokens": 128, "max_chunk_tokens": 64, "max_running": 8, "max_model_tokens": 500}
        config = EngineConfig(
            num_blocks=200,
            block_size=decoder.device.block_size,
            vocab_size=decoder.config.vocab_size,
            speculation=speculation,  # type: ignore[arg-type]
            **{"step_rows": 1000.0, **sizes, **changes},  # type: ignore[arg-type]
        )
        self.engine = Engine(config)
        self.executor = ModelExecutor(decoder, config.num_blocks)
        self.ids: dict[RequestId, list[int]] = {}
        self.logprobs: dict[RequestId, list[TokenLogprob]] = {}

    def generate(
        self, name: str, ids: Sequence[int], params: GenerateParams, grammar: TokenGrammar | None = None
    ) -> RequestId:
        session = SessionId(name)
        self.engine.open(session, 0.0)
        self.engine._sessions[session].estimates = SURE
        request = self.engine.generate(session, [TokenId(i) for i in ids], params, 0.0, grammar)
        self.ids[request], self.logprobs[request] = [], []
        self._take()
        return request

    def run(self) -> None:
        while (batch := self.engine.schedule(0.0)) is not None:
            self._take(self.engine.commit(batch, self.executor.execute(batch), 0.0))
            self.engine.check_invariants()

    def _take(self, deltas: Sequence[Any] | None = None) -> None:
        for delta in self.engine.take_deltas() if deltas is None else deltas:
            assert delta.error is None
            self.ids[delta.request] += delta.tokens.ids
            self.logprobs[delta.request] += delta.tokens.logprobs


FREE, WORD = frozenset(range(10, 40)), [frozenset({5}), frozenset({6}), frozenset({7})]
PLACES = [*WORD, *([FREE] * 7 + WORD) * 5, FREE]
KINDS = [
    (SamplingParams(), False, None),
    (SamplingParams(), True, 2),
    (SamplingParams(temperature=0.7, seed=3), False, None),
    (SamplingParams(temperature=1.0, top_k=5, top_p=0.9, seed=4), False, 0),
    (SamplingParams(presence_penalty=0.4, repetition_penalty=1.1), False, 1),
    (SamplingParams(temperature=0.5, seed=8), True, None),
    (SamplingParams(logit_bias=((TokenId(9), 1.0),)), False, None),
    (SamplingParams(), False, None),
]
PROMPTS = [[(n * 5 + i) % 11 + 10 for i in range(20 + 6 * n)] for n in range(len(KINDS))]


def replies(
    decoder: Decoder, speculation: str, *, alone: bool, **changes: Any
) -> tuple[list[tuple[list[int], list[TokenLogprob]]], Rig]:
    rig = Rig(decoder, speculation, **changes)
    requests = []
    for number, (sampling, constrained, logprobs) in enumerate(KINDS):
        params = GenerateParams(max_tokens=50, sampling=sampling, logprobs=logprobs)
        grammar = PatternGrammar(PLACES, decoder.config.vocab_size) if constrained else None
        requests.append(rig.generate(f"s{number}", PROMPTS[number], params, grammar))
        if alone:
            rig.run()
    rig.run()
    return [(rig.ids[request], rig.logprobs[request]) for request in requests], rig


@pytest.fixture(scope="module", params=["fp32 llama", "fp32 gemma3", "int8 llama", "int8/int8 gemma3"])
def decoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    precision, name = request.param.split()
    precision, _, kv_type = precision.partition("/")
    if precision == "int8" and native_library() is None:
        pytest.skip("installed without a C++ compiler")
    directory: Path = tmp_path_factory.mktemp("tiny")
    if name == "llama":
        write_hf(directory, TinyLlama(), TinyLlama().weights())
    else:
        save(make(FAMILY_MODELS[name]), directory)
    device = choose_device(precision, 2, kv_type or "float")  # type: ignore[arg-type]
    found = load_model(open_checkpoint(directory), device)
    if not found.device.row_invariant:
        pytest.skip("the products of this machine depend on the number of rows")
    return found


def test_ids_and_scores_are_those_without(decoder: Decoder) -> None:
    wanted, plain = replies(decoder, "off", alone=True, prefix_cache=False)
    for changes in ({}, {"max_draft_tokens": 3, "max_chunk_tokens": 7}, {"prefix_cache": False, "step_rows": 12.0}):
        found, rig = replies(decoder, "suffix", alone=False, **changes)
        assert found == wanted
        counters = rig.engine.counters()
        assert 0 < counters.num_accepted_tokens < counters.num_drafted_tokens
        assert counters.num_decode_slices == counters.num_sampled_tokens - counters.num_accepted_tokens
        assert counters.num_computed_tokens + counters.num_shared_tokens == plain.engine.counters().num_computed_tokens
    alone, _ = replies(decoder, "suffix", alone=True)
    assert alone == wanted


def test_a_session_goes_on_as_it_would_have(decoder: Decoder) -> None:
    """Held over turns with rejected drafts in between, and forked, against sessions that never saw a draft."""
    outputs = []
    for speculation in ("off", "suffix"):
        rig = Rig(decoder, speculation)
        params = GenerateParams(max_tokens=30)
        ids = [rig.generate("a", PROMPTS[0], params)]
        rig.run()
        rig.engine.open(SessionId("b"), 0.0, parent=SessionId("a"))
        for turn in ([12, 13, 14, 15], [40, 12, 13]):
            for session in ("a", "b"):
                request = rig.engine.generate(SessionId(session), [TokenId(i) for i in turn], params, 0.0)
                rig.ids[request], rig.logprobs[request] = [], []
                ids.append(request)
            rig.run()
        outputs.append([rig.ids[request] for request in ids])
    assert outputs[0] == outputs[1]
    assert rig.engine.counters().num_accepted_tokens > 0


LIST = "Berlin 12 km, Madrid 12 km, 北京 12 km, 上海 12 km, Lagos 12 km, Oslo 12 km. Again: Berlin 12 km, Madrid"
SPEC = GrammarSpec(kind="regex", source=r"(( [A-Z][a-z]{2,8}| ?[\u4e00-\u9fff]{2}) 12 km,){3}")


@pytest.mark.model
def test_on_the_embedded_model_with_a_real_grammar(embedded_model_path: Path) -> None:
    if native_library() is None:
        pytest.skip("installed without a C++ compiler")
    decoder = load_model(open_checkpoint(embedded_model_path), choose_device("int8", 2, "int8"))
    compiler = LLGuidanceCompiler(embedded_tokenizer())
    prompt = embedded_tokenizer().encode(LIST)
    outputs = []
    for speculation in ("off", "suffix"):
        rig = Rig(decoder, speculation, step_rows=12.0)
        requests = [
            rig.generate("free", prompt, GenerateParams(max_tokens=24)),
            rig.generate("bound", prompt, GenerateParams(max_tokens=40, grammar=SPEC), compiler.compile(SPEC)),
            rig.generate(
                "sampled", prompt, GenerateParams(max_tokens=24, sampling=SamplingParams(temperature=0.8, seed=2))
            ),
        ]
        rig.run()
        outputs.append([rig.ids[request] for request in requests])
    assert outputs[0] == outputs[1]
    assert rig.engine.counters().num_accepted_tokens > 10
