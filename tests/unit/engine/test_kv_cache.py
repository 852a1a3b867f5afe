from itertools import pairwise

import pytest

from tenuto.engine.free_blocks import EXTENT
from tenuto.engine.kv_cache import BlockTable, KVCache
from tenuto.engine.radix_tree import Namespace
from tenuto.ids import TokenId

TOKENS = [TokenId(t) for t in range(100, 140)]


def compute(cache: KVCache, table: BlockTable, tokens: list[TokenId]) -> None:
    cache.prepare_write(table, len(tokens))
    cache.commit(table, len(tokens) - table.num_computed, tokens)


@pytest.mark.parametrize(("num_tokens", "num_matched"), [(31, 16), (32, 16), (33, 32), (16, 0), (17, 16)])
def test_match_leaves_at_least_one_token_to_compute(num_tokens: int, num_matched: int) -> None:
    """B21: a prompt whose length is a multiple of the block size and that is fully cached."""
    cache = KVCache(8, 16)
    first = BlockTable(Namespace())
    compute(cache, first, TOKENS[:33])
    second = BlockTable(Namespace())
    assert cache.match(second, TOKENS[:num_tokens]) == num_matched
    assert second.blocks == first.blocks[: num_matched // 16]
    cache.check_invariants([first, second])


def test_full_blocks_are_published_partial_ones_never() -> None:
    cache = KVCache(8, 4)
    table = BlockTable(Namespace())
    compute(cache, table, TOKENS[:7])
    assert len(table.path) == 1
    cache.release(table)
    assert (cache.num_cached, cache.num_owned, len(cache.free_blocks())) == (1, 0, 7)
    cache.check_invariants([table])


def test_equal_blocks_are_deduplicated() -> None:
    cache = KVCache(8, 4)
    one, two = BlockTable(Namespace()), BlockTable(Namespace())
    cache.prepare_write(one, 8)
    cache.prepare_write(two, 8)
    cache.commit(one, 8, TOKENS)
    assert cache.num_owned == 4
    cache.commit(two, 8, TOKENS)
    assert two.blocks == one.blocks
    assert cache.num_owned == 2
    cache.check_invariants([one, two])


def test_fork_shares_and_the_first_writer_copies() -> None:
    cache = KVCache(8, 4)
    parent = BlockTable(Namespace())
    compute(cache, parent, TOKENS[:6])
    child = cache.fork(parent)
    assert child.blocks == parent.blocks
    assert cache.count_shared(child) == 2
    assert cache.missing_blocks(child, 7) == 1
    copy = cache.prepare_write(child, 7)
    assert copy is not None
    assert (copy.source, copy.target) == (parent.blocks[1], child.blocks[1])
    assert copy.target != copy.source
    cache.begin_step()
    cache.check_invariants([parent, child])
    cache.end_step()
    assert cache.prepare_write(parent, 7) is None, "the parent is the only holder left"
    cache.check_invariants([parent, child])


def test_a_copy_source_is_no_target_before_the_copy_is_made() -> None:
    cache = KVCache(3, 4, prefix_cache=False)
    parent = BlockTable(Namespace())
    compute(cache, parent, TOKENS[:2])
    child = cache.fork(parent)
    copy = cache.prepare_write(child, 3)
    assert copy is not None
    cache.release(parent)
    assert copy.source not in cache.free_blocks()
    cache.begin_step()
    cache.end_step()
    assert copy.source in cache.free_blocks()


def test_truncating_into_a_published_block_copies_before_writing() -> None:
    cache = KVCache(8, 4)
    table = BlockTable(Namespace())
    compute(cache, table, TOKENS[:8])
    published = table.blocks[1]
    cache.truncate(table, 6)
    copy = cache.prepare_write(table, 8)
    assert copy is not None and copy.source == published
    other = [*TOKENS[:6], TokenId(1), TokenId(2)]
    cache.commit(table, 2, other)
    cache.begin_step()
    cache.end_step()
    again = BlockTable(Namespace())
    assert cache.match(again, [*TOKENS[:8], TokenId(0)]) == 8
    assert again.blocks[1] == published
    cache.check_invariants([table, again])


def test_recycled_blocks_lose_their_key() -> None:
    """B22."""
    cache = KVCache(2, 4)
    table = BlockTable(Namespace())
    compute(cache, table, TOKENS[:8])
    cache.release(table)
    assert cache.num_cached == 2
    other = BlockTable(Namespace())
    compute(cache, other, TOKENS[20:28])
    assert cache.num_evictions == 2
    cache.release(other)
    again = BlockTable(Namespace())
    assert cache.match(again, TOKENS[:9]) == 0
    cache.check_invariants([table, other, again])


def test_the_end_of_a_sequence_is_evicted_before_its_beginning() -> None:
    cache = KVCache(3, 4)
    table = BlockTable(Namespace())
    compute(cache, table, TOKENS[:12])
    cache.release(table)
    other = BlockTable(Namespace())
    compute(cache, other, TOKENS[20:23])
    again = BlockTable(Namespace())
    assert cache.match(again, TOKENS[:13]) == 8


def test_a_longer_match_replaces_the_partial_block() -> None:
    cache = KVCache(8, 4)
    short = BlockTable(Namespace())
    compute(cache, short, TOKENS[:6])
    long = BlockTable(Namespace())
    compute(cache, long, TOKENS[:12])
    assert cache.match(short, TOKENS[:13]) == 6
    assert short.blocks == long.blocks
    cache.check_invariants([short, long])


def test_without_prefix_cache_nothing_is_kept() -> None:
    cache = KVCache(4, 4, prefix_cache=False)
    table = BlockTable(Namespace())
    compute(cache, table, TOKENS[:8])
    other = BlockTable(Namespace())
    assert cache.match(other, TOKENS[:9]) == 0
    cache.release(table)
    assert len(cache.free_blocks()) == 4
    cache.check_invariants([table, other])


def test_spare_tokens_take_nothing_from_anybody() -> None:
    cache = KVCache(4, 4)
    gone, table = BlockTable(Namespace()), BlockTable(Namespace())
    compute(cache, gone, TOKENS[:4])
    cache.release(gone)  # cached: to be found again, not to be evicted
    cache.prepare_write(table, 6)
    assert cache.spare_tokens(table, 6) == 2 + 4
    cache.prepare_write(table, 12)
    assert (cache.spare_tokens(table, 6), cache.num_cached, cache.num_evictions) == (6, 1, 0)
    cache.commit(table, 6, TOKENS[10:])
    cache.trim(table, 7)
    assert (len(table.blocks), cache.spare_tokens(table, 7)) == (2, 5)
    cache.trim(table, 9)
    assert len(table.blocks) == 2, "nothing is allocated"
    cache.check_invariants([table])


def cached(cache: KVCache, *conversations: list[TokenId]) -> None:
    """Conversations whose sessions are closed: nobody holds their KV, and it can still be found."""
    for tokens in conversations:
        table = BlockTable(Namespace())
        cache.match(table, tokens)
        compute(cache, table, tokens)
        cache.release(table)


def found(cache: KVCache, tokens: list[TokenId]) -> int:
    table = BlockTable(Namespace())
    gained = cache.match(table, tokens)
    cache.release(table)
    return gained


OTHER = [*TOKENS[:6], *(TokenId(t) for t in range(10))]  # goes on from the same six tokens


class TestForget:
    @pytest.mark.parametrize(("num_kept", "num_left"), [(0, 0), (1, 0), (4, 4), (7, 4), (8, 8), (14, 12)])
    def test_what_lies_after_the_kept_tokens_goes_a_block_with_any_of_it_too(self, num_kept: int, num_left: int):
        cache = KVCache(8, 4)
        cached(cache, TOKENS[:16])
        assert cache.forget(Namespace(), TOKENS[:15], num_kept) == 4 - num_left // 4
        assert found(cache, TOKENS[:16]) == min(num_left, 12)
        assert cache.num_cached == num_left // 4
        cache.check_invariants([])

    def test_what_was_generated_after_the_tokens_goes_with_them(self):
        cache = KVCache(8, 4)
        cached(cache, TOKENS[:16])
        assert cache.forget(Namespace(), TOKENS[:6], 4) == 3
        cache.check_invariants([])

    def test_not_where_several_went_on_from_there(self):
        cache = KVCache(12, 4)
        cached(cache, [*TOKENS[:6], *TOKENS[20:30]], OTHER)
        assert cache.forget(Namespace(), TOKENS[:6], 0) == 0
        assert cache.forget(Namespace(), OTHER, 0) == 3
        assert found(cache, [*TOKENS[:6], *TOKENS[20:30]]) == 12
        assert cache.forget(Namespace(), TOKENS[:6], 0) == 4
        assert cache.num_cached == 0
        cache.check_invariants([])

    def test_not_what_a_table_holds(self):
        cache = KVCache(12, 4)
        table = BlockTable(Namespace())
        compute(cache, table, TOKENS[:9])
        cached(cache, TOKENS[:16])
        assert cache.forget(Namespace(), TOKENS[:16], 0) == 2
        assert (cache.num_cached, cache.num_owned) == (0, 3)
        cache.check_invariants([table])
        cache.release(table)
        assert cache.forget(Namespace(), TOKENS[:16], 0) == 2

    def test_nothing_of_what_is_unknown_kept_whole_or_of_another_namespace(self):
        cache = KVCache(8, 4)
        cached(cache, TOKENS[:16])
        assert cache.forget(Namespace(), [], 0) == 0
        assert cache.forget(Namespace(), TOKENS[:12], 12) == 0
        assert cache.forget(Namespace(), TOKENS[:12], 99) == 0
        assert cache.forget(Namespace(), TOKENS[8:16], 0) == 0
        assert cache.forget(Namespace(), TOKENS[:3], 0) == 0
        assert cache.forget(Namespace(tenant="t"), TOKENS[:16], 0) == 0
        assert cache.num_cached == 4

    def test_while_a_step_is_in_flight_its_blocks_are_free_only_afterwards(self):
        cache = KVCache(4, 4)
        cached(cache, TOKENS[:16])
        cache.begin_step()
        assert cache.forget(Namespace(), TOKENS[:16], 0) == 4
        assert cache.num_available == 0
        cache.end_step()
        assert cache.num_available == 4
        cache.check_invariants([])


def longest_run(table: BlockTable) -> int:
    """Blocks of the table that lie one after the other."""
    longest = run = 1
    for before, after in pairwise(table.blocks):
        run = run + 1 if after == before + 1 else 1
        longest = max(longest, run)
    return longest


def distinct(table: int, count: int) -> list[TokenId]:
    return [TokenId(1000 * table + i) for i in range(count)]


def test_sessions_that_grow_side_by_side_lie_in_runs() -> None:
    cache = KVCache(16 * EXTENT, 4)
    tables = [BlockTable(Namespace()) for _ in range(4)]
    for end in range(1, 2 * EXTENT * 4 + 1):
        for index, table in enumerate(tables):
            compute(cache, table, distinct(index, end))
    assert all(longest_run(table) >= EXTENT for table in tables)
    cache.check_invariants(tables)


def test_what_is_evicted_together_is_used_as_a_run() -> None:
    cache = KVCache(2 * EXTENT, 4)
    for index in range(2):
        old = BlockTable(Namespace())
        compute(cache, old, distinct(index, EXTENT * 4))
        cache.release(old)
    assert not cache.free_blocks()
    table = BlockTable(Namespace())
    compute(cache, table, distinct(2, EXTENT * 4))
    assert longest_run(table) == EXTENT
    assert cache.num_evictions == EXTENT
    cache.check_invariants([table])


def test_a_copy_on_write_begins_a_run_of_its_own() -> None:
    cache = KVCache(4 * EXTENT, 4)
    parent = BlockTable(Namespace())
    compute(cache, parent, distinct(0, 6))
    child = cache.fork(parent)
    compute(cache, parent, distinct(0, 4 * EXTENT))
    compute(cache, child, [*distinct(0, 6), *distinct(1, 4 * EXTENT - 6)])
    assert parent.blocks[0] == child.blocks[0]
    assert longest_run(parent) == longest_run(child) == EXTENT - 1
    cache.check_invariants([parent, child])
