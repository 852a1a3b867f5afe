"""Pooled hidden states through the core and its client: beside generation, with the cache where it is valid."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
import pytest

from tenuto.clock import VirtualClock, run_virtual
from tenuto.engine import Engine, EngineConfig, LocalEngineClient, Output
from tenuto.engine.client import ClientOptions
from tenuto.errors import ContextLengthError, EngineClosed, InvalidRequest, StepFailed
from tenuto.ids import TokenId
from tenuto.protocol.engine import EngineInfo, GenerateParams, PooledStates
from tenuto.testing.engine_driver import EngineDriver
from tenuto.testing.fake_executor import FakeExecutor, expected_pooled

MakeDriver = Callable[..., EngineDriver]
POOLINGS = ["first", "last", "mean"]


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("chunk", [1, 3, 32])
def test_pooled_states_are_those_of_the_whole_text(make_driver: MakeDriver, pooling: str, chunk: int) -> None:
    """The driver holds every vector against the naive model."""
    driver = make_driver(max_chunk_tokens=chunk)
    driver.open("a")
    call = driver.embed("a", range(10), pooling)  # type: ignore[arg-type]
    driver.run()
    assert call.pooled is not None and call.error is None


def test_embedding_runs_in_the_steps_of_generation(make_driver: MakeDriver) -> None:
    driver = make_driver()
    driver.open("a")
    driver.open("b")
    driver.generate("a", [1, 2, 3], GenerateParams(max_tokens=5))
    driver.step()
    driver.embed("b", [4, 5, 6, 7, 8], "mean")
    batch = driver.begin()
    assert batch is not None and len(batch.slices) == 2
    assert [piece.states is not None for piece in batch.slices] != [False, False]
    driver.end()
    driver.run()


@pytest.mark.parametrize("pooling", POOLINGS)
def test_only_the_last_state_can_do_with_cached_tokens(make_driver: MakeDriver, pooling: str) -> None:
    driver = make_driver()
    text = list(range(20))
    for name in ("a", "b"):
        driver.open(name)
        call = driver.embed(name, text, pooling)  # type: ignore[arg-type]
        driver.run()
        driver.close(name)
    assert call.usage is not None
    assert call.usage.num_shared == (16 if pooling == "last" else 0)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_preemption_changes_no_vector(make_driver: MakeDriver, pooling: str) -> None:
    driver = make_driver(num_blocks=8, max_chunk_tokens=1, policy="fcfs")
    driver.open("a")
    driver.open("b")
    driver.generate("a", [1, 2, 3, 4], GenerateParams(max_tokens=20))
    call = driver.embed("b", range(20, 40), pooling)  # type: ignore[arg-type]
    driver.run()
    assert call.pooled is not None
    assert driver.engine.counters().num_preemptions > 0


def test_what_cannot_be_embedded_is_refused(make_driver: MakeDriver) -> None:
    driver = make_driver()
    driver.open("a")
    for ids, problem in (([], InvalidRequest), ([50], InvalidRequest), ([1] * 401, ContextLengthError)):
        with pytest.raises(problem):
            driver.embed("a", ids, "mean")
    driver.append("a", [1])
    driver.run()
    with pytest.raises(InvalidRequest, match="holds tokens"):
        driver.embed("a", [2], "mean")


def test_states_that_are_missing_or_broken_fail_their_request_alone(make_driver: MakeDriver) -> None:
    driver = make_driver()
    driver.open("a")
    driver.open("b")
    driver.embed("a", [1, 2], "mean")
    other = driver.embed("b", [3, 4], "mean")
    batch = driver.begin()
    assert batch is not None
    whole = driver.executor.execute(batch)
    driver.batch = None
    output = Output(whole.token_ids, broken=frozenset({0}), states={1: whole.states[1]})
    deltas = {d.request: d for d in driver.engine.commit(batch, output, driver.now)}
    assert isinstance(deltas[batch.slices[0].request].error, StepFailed)
    assert deltas[other.id].pooled is not None


def test_an_output_without_the_states_is_unusable(make_driver: MakeDriver) -> None:
    driver = make_driver()
    driver.open("a")
    driver.embed("a", [1, 2], "last")
    batch = driver.begin()
    assert batch is not None
    deltas = driver.engine.commit(batch, Output((None,)), driver.now)
    assert isinstance(deltas[0].error, StepFailed)
    assert "hidden states are missing" in str(deltas[0].error)


CONFIG = EngineConfig(num_blocks=64, block_size=4, vocab_size=50, max_model_tokens=200)
INFO = EngineInfo(
    model="fake",
    fingerprint="0",
    vocab_size=50,
    max_model_tokens=200,
    block_size=4,
    num_blocks=64,
    kv_bytes_per_token=0,
    device="fake",
    precision="none",
    row_invariant=True,
)


def make_client(engine: Engine) -> LocalEngineClient:
    executor = FakeExecutor(64, 4, 50)
    return LocalEngineClient(engine, executor, VirtualClock(), INFO, options=ClientOptions(inline=True))


def test_the_client_embeds_many_at_once_and_leaves_nothing() -> None:
    texts = [[TokenId((i * k) % 50) for i in range(3 + k)] for k in range(12)]
    engine = Engine(CONFIG)

    async def main() -> list[PooledStates]:
        async with make_client(engine) as client:
            return await asyncio.gather(*(client.embed(text, "mean") for text in texts))

    for text, pooled in zip(texts, run_virtual(main()), strict=True):
        np.testing.assert_array_equal(pooled.vector, expected_pooled(text, "mean"))
        assert pooled.vector.dtype == np.float32 and pooled.usage.num_prompt == len(text)
    assert engine.num_owned_blocks == 0
    engine.check_invariants()


def test_a_cancelled_or_refused_embed_leaves_nothing() -> None:
    engine = Engine(CONFIG)

    async def main() -> None:
        async with make_client(engine) as client:
            task = asyncio.create_task(client.embed([TokenId(1)] * 150, "last"))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(InvalidRequest):
                await client.embed([TokenId(99)], "last")
            assert engine.num_owned_blocks == 0 and not engine.has_work
        with pytest.raises(EngineClosed):
            await client.embed([TokenId(1)], "last")

    run_virtual(main())
    engine.check_invariants()
