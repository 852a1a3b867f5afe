import random
from itertools import pairwise

import pytest

from tenuto.engine.free_blocks import EXTENT, FreeBlocks
from tenuto.ids import BlockId


def grow(free: FreeBlocks, table: list[BlockId], count: int) -> None:
    for _ in range(count):
        table.append(free.take(table[-1] if table else None))


def runs(table: list[BlockId]) -> int:
    return 1 + sum(after != before + 1 for before, after in pairwise(table))


def test_one_sequence_lies_in_one_run() -> None:
    free, table = FreeBlocks(5 * EXTENT), []
    grow(free, table, 5 * EXTENT)
    assert table == list(range(5 * EXTENT))


def test_sequences_that_grow_side_by_side_do_not_cut_up_each_other() -> None:
    free = FreeBlocks(100 * EXTENT)
    tables: list[list[BlockId]] = [[] for _ in range(7)]
    for _ in range(12 * EXTENT):
        for table in tables:
            grow(free, table, 1)
    assert all(runs(table) <= 12 for table in tables)
    assert len({block for table in tables for block in table}) == 7 * 12 * EXTENT


def test_every_block_is_handed_out_when_no_extent_is_whole() -> None:
    free = FreeBlocks(4 * EXTENT + 3)
    tables: list[list[BlockId]] = [[] for _ in range(5)]
    for table in tables:
        grow(free, table, 1)
    rest = [free.take(None) for _ in range(len(free))]
    assert len(free) == 0
    assert sorted([*rest, *(table[0] for table in tables)]) == list(range(4 * EXTENT + 3))


def test_a_stranger_takes_the_end_of_an_extent() -> None:
    free, first = FreeBlocks(EXTENT), []
    grow(free, first, 2)
    assert free.take(None) == EXTENT - 1
    grow(free, first, EXTENT - 3)
    assert first == list(range(EXTENT - 1)), "its own run went on"


def test_a_run_goes_on_where_a_later_block_is_free_again() -> None:
    free, table = FreeBlocks(2 * EXTENT), []
    grow(free, table, EXTENT + 4)
    free.give(table[EXTENT:])
    del table[EXTENT:]
    grow(free, table, 2)
    assert table == list(range(EXTENT + 2))


def test_a_block_is_not_given_twice() -> None:
    free = FreeBlocks(3)
    block = free.take(None)
    free.give([block])
    with pytest.raises(AssertionError, match="free already"):
        free.give([block])


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_taken_and_given_nothing_is_lost_or_held_twice(seed: int) -> None:
    choice = random.Random(seed)
    size = choice.randrange(1, 6 * EXTENT)
    free = FreeBlocks(size)
    tables: list[list[BlockId]] = [[] for _ in range(4)]
    for _ in range(400):
        table = choice.choice(tables)
        if choice.random() < 0.6 and len(free):
            grow(free, table, choice.randrange(1, len(free) + 1) if choice.random() < 0.3 else 1)
        elif table:
            cut = choice.randrange(len(table))
            free.give(table[cut:])
            del table[cut:]
        held = [block for table in tables for block in table]
        assert sorted([*held, *free]) == list(range(size))
        assert len(free) == size - len(held)
