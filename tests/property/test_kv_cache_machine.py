"""Block tables against what their blocks really contain: an array of tokens per slot, written as a device would."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tenuto.engine.kv_cache import BlockTable, KVCache
from tenuto.engine.radix_tree import Namespace
from tenuto.ids import TokenId

SIZE, BLOCKS = 2, 12
TOKENS = st.lists(st.integers(0, 2).map(TokenId), min_size=1, max_size=7)


class CacheMachine(RuleBasedStateMachine):
    @initialize(prefix_cache=st.booleans())
    def build(self, prefix_cache: bool) -> None:
        self.cache = KVCache(BLOCKS, SIZE, prefix_cache=prefix_cache)
        # A slot holds the whole prefix up to its token, as KV does; None was never written.
        self.slots: list[tuple[TokenId, ...] | None] = [None] * (BLOCKS * SIZE)
        self.tables: list[tuple[BlockTable, list[TokenId]]] = []

    def pick(self, data: st.DataObject) -> tuple[BlockTable, list[TokenId]]:
        return self.tables[data.draw(st.integers(0, len(self.tables) - 1))]

    @rule(tenant=st.sampled_from(["", "t"]))
    def open(self, tenant: str) -> None:
        self.tables.append((BlockTable(Namespace(tenant=tenant)), []))

    @precondition(lambda self: self.tables)
    @rule(data=st.data(), ids=TOKENS)
    def compute(self, data: st.DataObject, ids: list[TokenId]) -> None:
        """One step of one sequence: match, allocate, copy, write, commit."""
        table, tokens = self.pick(data)
        tokens.extend(ids)
        self.cache.truncate(table, min(table.num_computed, len(tokens) - 1))
        before = table.num_computed
        gained = self.cache.match(table, tokens)
        assert table.num_computed == before + gained < len(tokens)
        if self.cache.missing_blocks(table, len(tokens)) > self.cache.num_available:
            return
        copy = self.cache.prepare_write(table, len(tokens))
        self.cache.begin_step()
        if copy is not None:
            for offset in range(SIZE):
                self.slots[copy.target * SIZE + offset] = self.slots[copy.source * SIZE + offset]
        for position in range(table.num_computed, len(tokens)):
            slot = table.blocks[position // SIZE] * SIZE + position % SIZE
            self.slots[slot] = tuple(tokens[: position + 1])
        self.cache.end_step()
        self.cache.commit(table, len(tokens) - table.num_computed, tokens)

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        table, tokens = self.pick(data)
        self.tables.append((self.cache.fork(table), list(tokens)))

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        table, tokens = self.pick(data)
        length = data.draw(st.integers(0, len(tokens)))
        del tokens[length:]
        self.cache.truncate(table, length)

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        self.cache.release(self.pick(data)[0])

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        table, _ = self.tables.pop(data.draw(st.integers(0, len(self.tables) - 1)))
        self.cache.release(table)

    @rule()
    def reload(self) -> None:
        for table, _ in self.tables:
            self.cache.release(table)
            table.namespace = table.namespace._replace(epoch=table.namespace.epoch + 1)
        self.cache.clear()
        assert self.cache.num_available == len(self.cache.free_blocks()) == BLOCKS

    @invariant()
    def every_table_reads_its_own_tokens(self) -> None:
        self.cache.check_invariants(t for t, _ in self.tables)
        for table, tokens in self.tables:
            for position in range(table.num_computed):
                slot = table.blocks[position // SIZE] * SIZE + position % SIZE
                assert self.slots[slot] == tuple(tokens[: position + 1])


TestCache = CacheMachine.TestCase
TestCache.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)
