"""Which KV blocks are free, and how many hold each of the others."""

from __future__ import annotations

from collections.abc import Iterable

from tenuto.engine.free_blocks import FreeBlocks
from tenuto.ids import BlockId


class BlockPool:
    """Reference counts over a fixed number of blocks. Knows nothing of what they contain.

    A block is in exactly one of these states, so free + quarantined + cached + owned = total:

    - free: nobody holds it and it has no content;
    - quarantined: freed while a step is in flight; free when that step ends, so that a step never writes
      a block that meanwhile belongs to somebody else;
    - cached: nobody holds it, but it is published, so its content can still be found;
    - owned: held by one or more; may be published too.

    Every method is O(1). Misuse is a bug in the caller and fails an assertion.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._free = FreeBlocks(num_blocks)
        self._quarantine: list[BlockId] = []
        self._references = [0] * num_blocks
        self._published = bytearray(num_blocks)
        self._num_cached = 0
        self._num_shared = 0
        self._in_flight = False

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_quarantined(self) -> int:
        return len(self._quarantine)

    @property
    def num_cached(self) -> int:
        return self._num_cached

    @property
    def num_owned(self) -> int:
        return self.num_blocks - len(self._free) - len(self._quarantine) - self._num_cached

    @property
    def num_shared(self) -> int:
        """Owned blocks with more than one holder."""
        return self._num_shared

    def num_references(self, block: BlockId) -> int:
        return self._references[block]

    def is_published(self, block: BlockId) -> bool:
        return bool(self._published[block])

    def is_writable(self, block: BlockId) -> bool:
        """Exactly one holder, and nobody can find it: writing changes nobody else's tokens."""
        return self._references[block] == 1 and not self._published[block]

    def free_blocks(self) -> tuple[BlockId, ...]:
        """The free blocks, for tests that fill them with poison."""
        return tuple(self._free)

    def allocate(self, after: BlockId | None = None) -> BlockId:
        """A free block, held once by the caller. `after`: the block that it follows in the caller's sequence."""
        assert self._free, "no free block; evict first"
        block = self._free.take(after)
        self._references[block] = 1
        return block

    def retain(self, block: BlockId) -> bool:
        """One more holder of an owned or cached block; True if it was cached."""
        if self._references[block] > 0:
            self._references[block] += 1
            self._num_shared += self._references[block] == 2
            return False
        assert self._published[block], f"block {block} is free and cannot be retained"
        self._references[block] = 1
        self._num_cached -= 1
        return True

    def free(self, block: BlockId) -> bool:
        """One holder less; True if that leaves the block cached."""
        assert self._references[block] > 0, f"block {block} is freed once too often"
        self._references[block] -= 1
        if self._references[block]:
            self._num_shared -= self._references[block] == 1
            return False
        if self._published[block]:
            self._num_cached += 1
            return True
        self._put_back(block)
        return False

    def publish(self, block: BlockId) -> None:
        """From now on the block's content can be found and must not change."""
        assert self._references[block] > 0, f"block {block} has no holder and cannot be published"
        assert not self._published[block], f"block {block} is already published"
        self._published[block] = 1

    def recycle(self, block: BlockId) -> None:
        """Free a cached block: its content is given up."""
        assert self._published[block], f"block {block} is not cached"
        assert self._references[block] == 0, f"block {block} is held and cannot be recycled"
        self._published[block] = 0
        self._num_cached -= 1
        self._put_back(block)

    def withdraw(self, block: BlockId) -> None:
        """The content of a held block can no longer be found."""
        assert self._published[block], f"block {block} is not published"
        assert self._references[block] > 0, f"block {block} has no holder; recycle it"
        self._published[block] = 0

    def begin_step(self) -> None:
        """A step is in flight: blocks freed from now on are quarantined."""
        assert not self._in_flight, "a step is in flight already"
        self._in_flight = True

    def end_step(self) -> None:
        """The step in flight is over: the quarantined blocks are free."""
        assert self._in_flight, "no step is in flight"
        self._in_flight = False
        self._free.give(self._quarantine)
        self._quarantine.clear()

    def _put_back(self, block: BlockId) -> None:
        if self._in_flight:
            self._quarantine.append(block)
        else:
            self._free.give((block,))

    def check_invariants(self, holders: Iterable[Iterable[BlockId]]) -> None:
        """Compares the counts with the block tables of all holders."""
        counted = [0] * self.num_blocks
        for table in holders:
            for block in table:
                counted[block] += 1
        assert counted == self._references, "reference counts differ from the number of holders"
        idle = [*self._free, *self._quarantine]
        assert len(set(idle)) == len(idle), "a block is free twice"
        assert not any(self._references[b] or self._published[b] for b in idle), "a free block is held or published"
        cached = sum(1 for b in range(self.num_blocks) if self._published[b] and not self._references[b])
        owned = sum(1 for n in self._references if n)
        assert cached == self._num_cached, "the count of cached blocks is wrong"
        assert self._num_shared == sum(1 for n in self._references if n > 1), "the count of shared blocks is wrong"
        assert len(idle) + cached + owned == self.num_blocks, "a block is lost"
