"""Which free block a sequence gets next: the one after its last, where possible."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tenuto.ids import BlockId

EXTENT = 16  # blocks; memory is read nearly as fast in runs of so many as in one


class FreeBlocks:
    """Free blocks, handed out so that those of one sequence lie in runs, which devices read faster than scattered ones.

    The pool is divided into extents of some neighbouring blocks each. A sequence goes on in the extent it is in, then
    in a wholly free one, if there is any in the next one. So several that grow side by side do not cut up each other's
    runs. Nothing is set aside: when no extent is wholly free, any free block will do.

    Every block is taken and given in O(1), amortised.
    """

    def __init__(self, num_blocks: int) -> None:
        self._num_blocks = num_blocks
        self._is_free = bytearray(b"\1") * num_blocks
        self._num_free = num_blocks
        self._counts = [min(EXTENT, num_blocks - first) for first in range(0, num_blocks, EXTENT)]  # of each extent
        # Extents by what is free of them, as ordered sets; the last one is taken first.
        self._whole = dict.fromkeys(range(len(self._counts) - 1, -1, -1))
        self._partial: dict[int, None] = {}

    def __len__(self) -> int:
        return self._num_free

    def __iter__(self) -> Iterator[BlockId]:
        return (BlockId(block) for block, is_free in enumerate(self._is_free) if is_free)

    def take(self, after: BlockId | None) -> BlockId:
        """The best block for a sequence whose last one is `after`; None: its first. There must be a free one."""
        block = self._choose(after)
        extent = block // EXTENT
        self._is_free[block] = 0
        self._num_free -= 1
        self._counts[extent] -= 1
        self._whole.pop(extent, None)
        if self._counts[extent]:
            self._partial[extent] = None
        else:
            self._partial.pop(extent, None)
        return block

    def give(self, blocks: Iterable[BlockId]) -> None:
        """These are free now."""
        for block in blocks:
            extent = block // EXTENT
            assert not self._is_free[block], f"block {block} is free already"
            self._is_free[block] = 1
            self._num_free += 1
            self._counts[extent] += 1
            if self._counts[extent] == self._size(extent):
                self._partial.pop(extent, None)
                self._whole[extent] = None
            else:
                self._partial[extent] = None

    def _choose(self, after: BlockId | None) -> BlockId:
        if after is not None:
            block = after + 1
            begins = block % EXTENT == 0
            if block < self._num_blocks and (block // EXTENT in self._whole if begins else self._is_free[block]):
                return BlockId(block)
        if self._whole:
            extent, _ = self._whole.popitem()
            return BlockId(extent * EXTENT)
        # What is last in an extent is what the sequence in it, if it is still there, will miss last.
        extent, _ = self._partial.popitem()
        return BlockId(self._is_free.rindex(1, extent * EXTENT, extent * EXTENT + self._size(extent)))

    def _size(self, extent: int) -> int:
        return min(EXTENT, self._num_blocks - extent * EXTENT)
