import pytest

from tenuto.engine.block_pool import BlockPool


def test_counts_add_up_through_a_block_life() -> None:
    pool = BlockPool(3)
    block = pool.allocate()
    assert (pool.num_free, pool.num_owned, pool.num_cached) == (2, 1, 0)
    pool.retain(block)
    pool.publish(block)
    assert not pool.free(block), "another one holds it"
    assert pool.free(block), "the last one leaves it cached"
    assert (pool.num_free, pool.num_owned, pool.num_cached) == (2, 0, 1)
    assert pool.retain(block), "it was cached"
    pool.free(block)
    pool.recycle(block)
    assert (pool.num_free, pool.num_owned, pool.num_cached) == (3, 0, 0)
    pool.check_invariants([])


def test_only_a_sole_unpublished_block_is_writable() -> None:
    pool = BlockPool(2)
    block = pool.allocate()
    assert pool.is_writable(block)
    pool.retain(block)
    assert not pool.is_writable(block)
    pool.free(block)
    pool.publish(block)
    assert not pool.is_writable(block)


def test_blocks_freed_in_flight_are_free_only_afterwards() -> None:
    pool = BlockPool(2)
    block = pool.allocate()
    pool.begin_step()
    pool.free(block)
    assert (pool.num_free, pool.num_quarantined) == (1, 1)
    assert block not in pool.free_blocks()
    pool.check_invariants([])
    pool.end_step()
    assert (pool.num_free, pool.num_quarantined) == (2, 0)


def test_misuse_is_caught() -> None:
    pool = BlockPool(1)
    block = pool.allocate()
    with pytest.raises(AssertionError, match="no free block"):
        pool.allocate()
    pool.free(block)
    with pytest.raises(AssertionError, match="once too often"):
        pool.free(block)
    with pytest.raises(AssertionError, match="cannot be retained"):
        pool.retain(block)
    with pytest.raises(AssertionError, match="not cached"):
        pool.recycle(block)
    with pytest.raises(AssertionError, match="no step"):
        pool.end_step()
    with pytest.raises(AssertionError, match="number of holders"):
        pool.check_invariants([[block]])
