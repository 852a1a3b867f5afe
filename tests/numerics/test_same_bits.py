"""Same input, same output: however a sequence is chunked, batched, placed or shared, its logits are the same bits.

Where the machine's products fail the reference device's probe, equality is asserted within rounding instead.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from family_models import FAMILY_MODELS, make, save
from ragged_batches import Query, ragged
from tenuto.checkpoint import open_checkpoint
from tenuto.device import choose_device
from tenuto.model import Decoder, load_model
from tiny_models import TinyLlama, write_hf

NUM_BLOCKS = 160
IDS = [random.Random(4).randrange(64) for _ in range(700)]
TABLE = list(range(50, 94))


LLAMAS = {
    "llama": TinyLlama(),
    "odd sizes": TinyLlama(num_heads=6, num_kv_heads=6, head_dim=10, hidden_size=36, intermediate_size=52),
}
DECODERS = [
    ("fp32", "llama"),
    ("bf16", "llama"),
    ("fp32", "odd sizes"),
    ("fp32", "gemma3"),  # windows, norms of heads and outputs, gelu
    ("fp32", "qwen2-windows"),
    ("fp32", "qwen3-moe"),
    ("int8", "llama"),
    ("int8/int8", "llama"),
    ("int8/int8", "gemma3"),
    ("int8/int8", "qwen3-moe"),
    ("int4/int8", "llama"),
    ("int4", "qwen3-moe"),
]


@pytest.fixture(scope="module", params=DECODERS, ids="-".join)
def decoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    precision, name = request.param
    directory: Path = tmp_path_factory.mktemp("tiny")
    if name in LLAMAS:
        write_hf(directory, LLAMAS[name], LLAMAS[name].weights())
    else:
        save(make(FAMILY_MODELS[name]), directory)
    precision, _, kv_type = precision.partition("/")
    return load_model(open_checkpoint(directory), choose_device(precision, 2, kv_type or "float"))


def same(decoder: Decoder, left: torch.Tensor, right: torch.Tensor) -> None:
    if decoder.device.row_invariant:
        assert torch.equal(left, right)
    else:
        torch.testing.assert_close(left, right, atol=0.2 if decoder.device.precision == "bf16" else 5e-5, rtol=0)


def cold(decoder: Decoder, ids: list[int]) -> torch.Tensor:
    """Logits of every position, computed alone, in one chunk, into an empty pool."""
    return decoder.forward(ragged([Query(ids, 0, TABLE)], all_logits=True), decoder.allocate_kv(NUM_BLOCKS))


@pytest.mark.parametrize("chunk", [1, 7, 16, 33, 256])
def test_chunked_equals_whole(decoder: Decoder, chunk: int) -> None:
    ids = IDS[: min(700, 30 * chunk + 10)]
    kv = decoder.allocate_kv(NUM_BLOCKS)
    pieces = [
        decoder.forward(ragged([Query(ids[at : at + chunk], at, TABLE)], all_logits=True), kv)
        for at in range(0, len(ids), chunk)
    ]
    same(decoder, torch.cat(pieces), cold(decoder, ids))


def test_batched_and_chunked_at_random_equals_alone(decoder: Decoder) -> None:
    """Several sequences advance by random chunks in random company, order and blocks."""
    rng = random.Random(8)
    kv = decoder.allocate_kv(NUM_BLOCKS)
    free = rng.sample(range(NUM_BLOCKS), NUM_BLOCKS)
    sequences = [[rng.randrange(64) for _ in range(n)] for n in (5, 40, 290, 520)]
    tables = [[free.pop() for _ in range(-(-len(ids) // 16))] for ids in sequences]
    seen: list[list[torch.Tensor]] = [[] for _ in sequences]
    done = [0] * len(sequences)
    while any(done[i] < len(ids) for i, ids in enumerate(sequences)):
        active = [i for i, ids in enumerate(sequences) if done[i] < len(ids) and rng.random() < 0.8]
        rng.shuffle(active)
        queries = []
        for i in active:
            count = rng.choice((1, 1, 3, 20, 65, 150))
            queries.append(Query(sequences[i][done[i] : done[i] + count], done[i], tables[i]))
        if not queries:
            continue
        parts = decoder.forward(ragged(queries, all_logits=True), kv).split([len(q.ids) for q in queries])
        for i, query, part in zip(active, queries, parts, strict=True):
            seen[i].append(part)
            done[i] += len(query.ids)
    for ids, pieces in zip(sequences, seen, strict=True):
        same(decoder, torch.cat(pieces), cold(decoder, ids))


def test_paged_equals_contiguous(decoder: Decoder) -> None:
    ids = IDS[:300]
    scattered = random.Random(2).sample(range(NUM_BLOCKS), 19)
    paged = decoder.forward(ragged([Query(ids, 0, scattered)], all_logits=True), decoder.allocate_kv(NUM_BLOCKS))
    same(decoder, paged, cold(decoder, ids))


def test_shared_prefix_blocks_equal_cold(decoder: Decoder) -> None:
    """Two sequences read the same 20 blocks of prefix, computed by a third, and go on differently."""
    prefix, tails = IDS[:320], (IDS[320:350], IDS[400:431])
    kv = decoder.allocate_kv(NUM_BLOCKS)
    shared = list(range(10, 30))
    decoder.forward(ragged([Query(prefix, 0, shared)]), kv)
    tables = [[*shared, 40, 41], [*shared, 7, 6]]
    queries = [Query(tail, 320, table) for tail, table in zip(tails, tables, strict=True)]
    parts = decoder.forward(ragged(queries, all_logits=True), kv).split([30, 31])
    for tail, part in zip(tails, parts, strict=True):
        same(decoder, part, cold(decoder, prefix + tail)[320:])


def test_a_copied_partial_block_goes_on_like_the_original(decoder: Decoder) -> None:
    """Copy-on-write: the fork's last, partial block is copied; both then write their own."""
    ids, left, right = IDS[:40], IDS[40:47], IDS[100:107]
    kv = decoder.allocate_kv(NUM_BLOCKS)
    decoder.forward(ragged([Query(ids, 0, [3, 4, 5])]), kv)
    decoder.device.copy_blocks(kv, [(5, 9)])
    queries = [Query(left, 40, [3, 4, 5]), Query(right, 40, [3, 4, 9])]
    parts = decoder.forward(ragged(queries, all_logits=True), kv).split([7, 7])
    same(decoder, parts[0], cold(decoder, ids + left)[40:])
    same(decoder, parts[1], cold(decoder, ids + right)[40:])


def test_stale_slots_after_the_end_do_not_matter(decoder: Decoder) -> None:
    """Blocks come back from the pool with another sequence's KV in them."""
    kv = decoder.allocate_kv(NUM_BLOCKS)
    decoder.forward(ragged([Query(IDS, 0, TABLE)]), kv)
    ids = IDS[300:333]
    same(decoder, decoder.forward(ragged([Query(ids, 0, TABLE)], all_logits=True), kv), cold(decoder, ids))
