"""A real model's sessions leave one engine and go on in another: KV bit for bit, and so the same tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import torch

from tenuto.clock import RealClock
from tenuto.config import Config
from tenuto.device import ReferenceDevice
from tenuto.device.cpu.kv_pool import CpuKVPool
from tenuto.device.protocol import AttentionSpec, KVPool
from tenuto.engine import LocalEngineClient
from tenuto.ids import SessionId, TokenId
from tenuto.protocol.engine import MAX_PIECE_BYTES, GenerateParams, SamplingParams
from tenuto.wiring import load, local_engine

A, B = SessionId("a"), SessionId("b")
TEXT = "Tokyo 东京: sessions hold their keys and values across tool calls. " * 2
GREEDY, SAMPLED = SamplingParams(), SamplingParams(temperature=1.0, seed=5, top_p=0.9)


async def say(engine: LocalEngineClient, session: SessionId, ids: list[TokenId], sampling: SamplingParams) -> Any:
    params = GenerateParams(max_tokens=6, sampling=sampling, logprobs=3)
    deltas = [delta async for delta in engine.generate(session, ids, params)]
    return [d.ids for d in deltas], [d.logprobs for d in deltas]


@pytest.mark.model
@pytest.mark.parametrize(("precision", "kv_type"), [("fp32", "float"), ("int8", "int8")])
def test_a_session_goes_on_elsewhere_with_the_same_bits(precision: str, kv_type: str) -> None:
    config = Config.load(precision=precision, kv_type=kv_type, kv_tokens=256)
    loaded = load(config, RealClock())
    ids = loaded.text.tokenizer.encode(TEXT)

    async def main() -> None:
        here, there = (local_engine(loaded, config, RealClock()) for _ in range(2))
        async with here, there:
            await here.open(A)
            await say(here, A, ids, GREEDY)
            pieces = [piece async for piece in here.export(A)]
            assert max(map(len, pieces)) <= MAX_PIECE_BYTES
            before = await here.stats(A)
            assert sum(map(len, pieces)) > before.num_computed * (await here.info()).kv_bytes_per_token

            async def sent() -> AsyncIterator[bytes]:
                for piece in pieces:
                    yield piece

            await there.import_(B, sent())
            after = await there.stats(B)
            assert (after.num_tokens, after.num_computed) == (before.num_tokens, before.num_computed)
            again = [piece async for piece in there.export(B)]
            assert again == pieces  # what is stored is what was stored
            more = loaded.text.tokenizer.encode(" 结果：21 degrees.")
            for sampling in (GREEDY, SAMPLED):
                assert await say(there, B, more, sampling) == await say(here, A, more, sampling)
            stats = await there.stats(B)
            assert stats.total_computed_tokens <= 2 * (len(more) + 1 + 6)
            assert not torch.is_inference_mode_enabled()

    asyncio.run(main())


SPECS = [AttentionSpec(4, 2, 16), AttentionSpec(4, 1, 32), AttentionSpec(4, 2, 16)]


def pool_of(index: int) -> KVPool:
    if index >= 3:
        return CpuKVPool(SPECS, 5, "float" if index == 3 else "int8")
    device = (ReferenceDevice("fp32", 3), ReferenceDevice("bf16"), ReferenceDevice("int8", kv_type="int8"))[index]
    return device.allocate_kv(SPECS, 5)


@pytest.mark.parametrize("index", range(5))
def test_every_slot_of_every_pool_is_read_and_written_alone(index: int) -> None:
    pool, rng = pool_of(index), np.random.default_rng(index)
    num_slots = pool.num_blocks * pool.block_size

    def finite() -> bytes:
        """Random bytes of one token: of numbers, even those of 16 bits, none is infinite or NaN."""
        raw = rng.integers(0, 256, pool.token_bytes, dtype=np.uint8)
        return bytes(raw & 0xBF)

    tokens = [finite() for _ in range(num_slots)]
    order = rng.permutation(num_slots).tolist()
    for first in range(0, num_slots, 7):
        some = order[first : first + 7]
        pool.write_tokens(some, b"".join(tokens[slot] for slot in some))
    assert pool.read_tokens(list(range(num_slots))) == b"".join(tokens)
    other = pool_of(index)
    other.write_tokens([3, 1], pool.read_tokens([2, 4]))
    assert other.read_tokens([1, 3, 0]) == tokens[4] + tokens[2] + bytes(pool.token_bytes)


def test_cpu_slots_are_those_that_the_kernels_use() -> None:
    """By copying a block: the bytes of its slots go with it."""
    pool = CpuKVPool(SPECS, 5, "int8")
    data = bytes((np.arange(16 * pool.token_bytes) % 0x3F).astype(np.uint8))
    pool.write_tokens(list(range(16, 32)), data)
    pool.copy_blocks([(1, 3)])
    assert pool.read_tokens(list(range(48, 64))) == data
    assert pool.layer(0).key_scales[0, 1].tolist() != [0] * 16


@pytest.mark.parametrize("index", [0, 1, 3, 4])
def test_numbers_that_are_not_finite_are_refused(index: int) -> None:
    pool = pool_of(index)
    bad = bytes([0xFF, 0x7F] * (pool.token_bytes // 2))
    with pytest.raises(ValueError, match="finite"):
        pool.write_tokens([1], bad)
    assert not any(pool.read_tokens([1]))
