"""Our own engine as a system to be measured: a tiny real model, its KV, counters and settings."""

from __future__ import annotations

import asyncio

import pytest

from runnable_models import write_runnable
from tenuto.bench.experiments import compare, curve, never_repeating, speculation_pairs
from tenuto.bench.local import LocalBench
from tenuto.bench.records import RunRecord
from tenuto.bench.shape import Shape
from tenuto.bench.workload import TokenWorkload
from tenuto.clock import RealClock
from tenuto.config import Config
from tenuto.errors import ContextLengthError
from tenuto.ids import TokenId
from tenuto.protocol.engine import SamplingParams
from tenuto.wiring import LoadedModel, load
from tiny_models import TinyLlama

SHAPE = Shape(agents=3, turns=2, prompt_words=1, result_words=1, output_tokens=4, tool_s=0.0)


def _pieces(agent: int) -> tuple[tuple[TokenId, ...], ...]:
    shared = tuple(TokenId(5 + i % 300) for i in range(70))
    own = tuple(TokenId(5 + (agent * 31 + i * 7) % 300) for i in range(10))
    return (shared + own, own[::-1])


WORKLOAD = TokenWorkload(SHAPE, tuple(_pieces(agent) for agent in range(SHAPE.agents)))


@pytest.fixture(scope="module")
def config() -> Config:
    return Config.load(kv_tokens=64, num_threads=1)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory, config: Config) -> LoadedModel:
    tiny = TinyLlama(vocab_size=320, max_model_tokens=512)
    folder = write_runnable(tmp_path_factory.mktemp("tiny"), tiny)
    return load(config.model_copy(update={"model": str(folder)}), RealClock())


@pytest.fixture
def bench(loaded: LoadedModel, config: Config) -> LocalBench:
    return LocalBench(loaded, config, RealClock())


def test_held_computes_what_is_new_and_reprefill_everything_again(bench: LocalBench) -> None:
    held = asyncio.run(bench.run(WORKLOAD, "held"))
    again = asyncio.run(bench.run(WORKLOAD, "reprefill"))
    assert [t.num_in for t in held.turns] == [80, 10] * 3
    assert [t.num_held for t in held.turns if t.turn == 1] == [83] * 3
    # The first agent computes the shared beginning, the others find its full blocks.
    assert sorted(t.num_shared or 0 for t in held.turns if t.turn == 0) == [0, 64, 64]
    assert {t.num_held for t in again.turns} == {t.num_shared for t in again.turns} == {0}
    assert [t.num_computed for t in again.turns] == [80, 94] * 3
    assert held.settings["prefix_cache"] == "on" and again.settings["prefix_cache"] == "off"


def test_kv_is_counted_by_distinct_blocks_and_beside_separate_caches(bench: LocalBench) -> None:
    run = asyncio.run(bench.run(WORKLOAD, "held"))
    assert run.kv is not None
    # 97 tokens with KV each (the last id has none): 7 blocks of 16, of which 4 are shared.
    blocks = 4 + 3 * 3
    assert run.kv.num_tokens == 3 * 97
    assert run.kv.kv_bytes == blocks * 16 * run.kv.bytes_per_token
    assert run.kv.bytes_per_token == 2 * 2 * 2 * 16 * 4  # K and V, layers, heads, head size, float32
    assert run.kv.separate_bf16_bytes == 3 * 97 * 2 * 2 * 2 * 16 * 2
    assert asyncio.run(bench.run(WORKLOAD, "reprefill")).kv is None


def test_speculation_is_switched_by_run_and_what_it_guessed_is_counted(bench: LocalBench) -> None:
    workload = TokenWorkload(Shape(agents=2, turns=1, output_tokens=40), tuple(_pieces(a)[:1] for a in range(2)))

    def one_word(_: int) -> SamplingParams:
        return SamplingParams(logit_bias=((TokenId(9), 100.0),))

    off = asyncio.run(bench.run(workload, "held", speculation=False, sampled=one_word))
    on = asyncio.run(bench.run(workload, "held", speculation=True, sampled=one_word))
    assert off.speculation is not None and off.speculation.num_drafted == off.speculation.num_accepted == 0
    assert on.settings["speculation"] == "suffix" and off.settings["speculation"] == "off"
    assert all(t.num_decode_steps == 40 for t in off.turns)
    assert on.speculation is not None and 0 < on.speculation.num_accepted <= on.speculation.num_drafted
    steps = sum(t.num_decode_steps or 0 for t in on.turns)
    assert steps + on.speculation.num_accepted == 2 * 40
    assert [t.ids for t in on.turns] == [t.ids for t in off.turns]


def test_the_pool_is_made_as_large_as_the_workload(loaded: LoadedModel, config: Config) -> None:
    small = LocalBench(loaded, config.model_copy(update={"max_running": 1}), RealClock())
    run = asyncio.run(small.run(WORKLOAD, "held"))
    assert len(run.turns) == 6, "a pool of 64 tokens could not hold them"


def test_a_session_that_outgrows_the_model_is_told(bench: LocalBench) -> None:
    long = (tuple(TokenId(5 + i % 300) for i in range(600)),)
    with pytest.raises(ContextLengthError):
        asyncio.run(bench.run(TokenWorkload(Shape(agents=1, turns=1, output_tokens=4), (long,)), "held"))


def test_comparisons_run_in_turns_and_give_ratios(bench: LocalBench) -> None:
    runs, ratios = asyncio.run(compare(bench, WORKLOAD, rounds=2, baseline_agents=1))
    assert [run.mode for run in runs] == ["reprefill"] * 2 + ["serial"] * 2 + ["held"] * 2 + ["held, speculation"] * 2
    assert [run.agents for run in runs] == [1] * 4 + [3] * 4
    assert all(len(ratio.pairs) == 2 and ratio.value > 0 for ratio in ratios) and len(ratios) == 4
    assert ratios[0].pairs[0] == runs[4].agents_per_s / runs[0].agents_per_s


def test_a_curve_runs_the_first_agents_of_one_workload(bench: LocalBench) -> None:
    runs = asyncio.run(curve(bench, WORKLOAD, (1, 3), "held"))
    assert [run.agents for run in runs] == [1, 3]


def test_pairs_alternate_who_goes_first(bench: LocalBench) -> None:
    order: list[bool] = []

    async def run(on: bool) -> RunRecord:
        order.append(on)
        return await bench.run(WORKLOAD.first_agents(1), "held", speculation=on, sampled=never_repeating(1))

    runs, (ratio,) = asyncio.run(speculation_pairs(run, 3))
    assert order == [False, True, True, False, False, True]
    assert len(ratio.pairs) == 3 and {run.mode for run in runs} == {"held, speculation on", "held, speculation off"}


def test_sampled_text_differs_by_agent_and_is_the_same_by_seed() -> None:
    assert never_repeating(1)(0) == never_repeating(1)(0) != never_repeating(1)(1)
    assert never_repeating(1)(0).temperature == 1.0
