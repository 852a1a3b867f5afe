"""The pool against a dict of reference counts."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tenuto.engine.block_pool import BlockPool
from tenuto.ids import BlockId

SIZE = 6


class PoolMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(SIZE)
        self.held: dict[BlockId, int] = {}
        self.published: set[BlockId] = set()
        self.quarantine: set[BlockId] = set()
        self.in_flight = False

    def cached(self) -> list[BlockId]:
        return sorted(self.published - set(self.held))

    def emptied(self, block: BlockId) -> None:
        if self.in_flight:
            self.quarantine.add(block)

    @precondition(lambda self: self.pool.num_free > 0)
    @rule()
    def allocate(self) -> None:
        block = self.pool.allocate()
        assert block not in self.held and block not in self.published and block not in self.quarantine
        self.held[block] = 1

    @precondition(lambda self: self.held or self.cached())
    @rule(data=st.data())
    def retain(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(sorted(self.held) + self.cached()))
        assert self.pool.retain(block) == (block not in self.held)
        self.held[block] = self.held.get(block, 0) + 1

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(sorted(self.held)))
        self.held[block] -= 1
        last = not self.held[block]
        if last:
            del self.held[block]
        assert self.pool.free(block) == (last and block in self.published)
        if last and block not in self.published:
            self.emptied(block)

    @precondition(lambda self: set(self.held) - self.published)
    @rule(data=st.data())
    def publish(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(sorted(set(self.held) - self.published)))
        self.pool.publish(block)
        self.published.add(block)

    @precondition(lambda self: self.cached())
    @rule(data=st.data())
    def recycle(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(self.cached()))
        self.pool.recycle(block)
        self.published.remove(block)
        self.emptied(block)

    @rule()
    def step(self) -> None:
        if self.in_flight:
            self.pool.end_step()
            self.quarantine.clear()
        else:
            self.pool.begin_step()
        self.in_flight = not self.in_flight

    @invariant()
    def counts(self) -> None:
        self.pool.check_invariants([[b] * n for b, n in self.held.items()])
        assert self.pool.num_owned == len(self.held)
        assert self.pool.num_cached == len(self.cached())
        assert self.pool.num_quarantined == len(self.quarantine)
        assert self.pool.num_free == SIZE - len(self.held) - len(self.cached()) - len(self.quarantine)
        for block in range(SIZE):
            sole = self.held.get(BlockId(block)) == 1 and block not in self.published
            assert self.pool.is_writable(BlockId(block)) == sole


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=40, stateful_step_count=60, deadline=None)
