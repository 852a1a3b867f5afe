"""Block tables over one pool: sharing, copy-on-write, publishing and eviction of KV."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tenuto.engine.batch import BlockCopy
from tenuto.engine.block_pool import BlockPool
from tenuto.engine.radix_tree import BlockKey, Namespace, Node, RadixTree
from tenuto.ids import BlockId, TokenId

NextKey: TypeAlias = tuple[Node | Namespace, BlockKey]  # a place in the tree, and the tokens of a block below it


@dataclass(slots=True, eq=False)
class BlockTable:
    """Where the KV of one session lies. Block i holds the tokens `i * block_size ..`."""

    namespace: Namespace
    blocks: list[BlockId] = field(default_factory=list)
    path: list[Node] = field(default_factory=list)  # the tree nodes of the first blocks: all full computed ones
    num_computed: int = 0  # tokens with KV


class KVCache:
    """The pool and the tree together.

    With the prefix cache on, the full computed blocks of every table are exactly a path of the tree: when two
    tables compute the same block, the second takes over the first one's block. Blocks in the tree and blocks with
    two holders are never written; `prepare_write` copies such a block first.
    """

    def __init__(self, num_blocks: int, block_size: int, *, prefix_cache: bool = True) -> None:
        self.block_size = block_size
        self.prefix_cache = prefix_cache
        self.num_evictions = 0
        self._pool = BlockPool(num_blocks)
        self._tree = RadixTree(block_size)
        self._node_of: list[Node | None] = [None] * num_blocks
        self._copied: list[BlockId] = []  # sources of this step's copies, held while it is planned

    @property
    def num_blocks(self) -> int:
        return self._pool.num_blocks

    @property
    def num_available(self) -> int:
        """Blocks that can be allocated, those of unreferenced cached ones included."""
        return self._pool.num_free + self._pool.num_cached

    @property
    def num_cached(self) -> int:
        return self._pool.num_cached

    @property
    def num_owned(self) -> int:
        return self._pool.num_owned

    @property
    def num_shared(self) -> int:
        """Owned blocks with more than one holder."""
        return self._pool.num_shared

    def free_blocks(self) -> tuple[BlockId, ...]:
        return self._pool.free_blocks()

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def match(self, table: BlockTable, tokens: Sequence[TokenId]) -> int:
        """Take over published blocks that continue the table along `tokens`; the number of tokens this gains.

        Stops before the last token: at least one is computed, since its logits are wanted (B21).
        """
        if not self.prefix_cache:
            return 0
        after = table.path[-1] if table.path else None
        nodes = self._tree.match(table.namespace, after, tokens, len(tokens) - 1)
        if not nodes:
            return 0
        before = table.num_computed
        kept = len(table.path)
        for node in nodes:
            self._retain(node)
        self._free_blocks_from(table, kept)  # a partial block, now replaced by a full one
        for node in nodes:
            assert node.block is not None
            table.blocks.append(node.block)
        table.path.extend(nodes)
        table.num_computed = len(table.path) * self.block_size
        assert table.num_computed > before, "a match must gain tokens"
        return table.num_computed - before

    def next_key(self, table: BlockTable, tokens: Sequence[TokenId], max_tokens: int) -> NextKey | None:
        """Names the next full block after the table's path among the first `max_tokens`; equal names, equal KV.

        None without a prefix cache, or if there is no such block.
        """
        start = len(table.path) * self.block_size
        if not self.prefix_cache or start + self.block_size > max_tokens:
            return None
        place = table.path[-1] if table.path else table.namespace
        return place, tuple(tokens[start : start + self.block_size])

    def spare_tokens(self, table: BlockTable, num_tokens: int) -> int:
        """Slots after the first `num_tokens` that the table has or can get without taking anything from anybody."""
        return (len(table.blocks) + self._pool.num_free) * self.block_size - num_tokens

    def missing_blocks(self, table: BlockTable, num_tokens: int) -> int:
        """Blocks to allocate before tokens up to `num_tokens` can be written, a copy on write included."""
        first = table.num_computed // self.block_size
        copies = first < len(table.blocks) and not self._pool.is_writable(table.blocks[first])
        return max(0, self.blocks_for(num_tokens) - len(table.blocks)) + copies

    def prepare_write(self, table: BlockTable, num_tokens: int) -> BlockCopy | None:
        """Allocate so that the tokens from `num_computed` up to `num_tokens` can be written.

        The caller has made sure that `missing_blocks` are available. Returns the copy to make first, if the block of
        the next token is shared or published.
        """
        copy = None
        first = table.num_computed // self.block_size
        if first < len(table.blocks) and not self._pool.is_writable(table.blocks[first]):
            source = table.blocks[first]
            (target,) = self._allocate(1, table.blocks[first - 1] if first else None)
            if table.num_computed % self.block_size:
                copy = BlockCopy(source, target)
                self._copied.append(source)
            else:
                self._free(source)
            table.blocks[first] = target
        missing = self.blocks_for(num_tokens) - len(table.blocks)
        table.blocks += self._allocate(missing, table.blocks[-1] if table.blocks else None)
        return copy

    def commit(self, table: BlockTable, num_tokens: int, tokens: Sequence[TokenId]) -> None:
        """`num_tokens` more tokens have KV; the blocks that this filled are published or deduplicated."""
        table.num_computed += num_tokens
        if not self.prefix_cache:
            return
        size = self.block_size
        for index in range(len(table.path), table.num_computed // size):
            after = table.path[-1] if table.path else None
            key = tuple(tokens[index * size : (index + 1) * size])
            block = table.blocks[index]
            node = self._tree.child(table.namespace, after, key)
            if node is None:
                node = self._tree.insert(table.namespace, after, key, block)
                self._pool.publish(block)
                self._node_of[block] = node
            else:
                assert node.block is not None
                self._retain(node)
                self._free(block)
                table.blocks[index] = node.block
            table.path.append(node)

    def add(self, table: BlockTable, num_tokens: int, tokens: Sequence[TokenId]) -> None:
        """Blocks for the KV of the next `num_tokens` tokens, which comes from outside, as if it were there already.

        The caller has made sure that `missing_blocks` are available.
        """
        copy = self.prepare_write(table, table.num_computed + num_tokens)
        assert copy is None, "KV from outside is added to blocks of its own"
        self.commit(table, num_tokens, tokens)

    def slots(self, table: BlockTable, first: int, end: int) -> list[int]:
        """Where the KV of computed tokens lies: block * block_size + place in the block."""
        assert end <= table.num_computed, "tokens without KV have no slots"
        size = self.block_size
        return [table.blocks[i // size] * size + i % size for i in range(first, end)]

    def truncate(self, table: BlockTable, num_tokens: int) -> None:
        """Forget the KV after the first `num_tokens` tokens, and blocks that hold none of the rest."""
        table.num_computed = min(table.num_computed, num_tokens)
        del table.path[table.num_computed // self.block_size :]
        self._free_blocks_from(table, self.blocks_for(table.num_computed))

    def trim(self, table: BlockTable, num_tokens: int) -> None:
        """Free blocks that hold none of the first `num_tokens` tokens; all that are computed are among those."""
        assert table.num_computed <= num_tokens, "computed tokens would lose their block"
        self._free_blocks_from(table, self.blocks_for(num_tokens))

    def fork(self, table: BlockTable) -> BlockTable:
        """A second table over the same blocks; the one that writes a shared block first copies it."""
        blocks = table.blocks[: self.blocks_for(table.num_computed)]
        for block in blocks:
            self._pool.retain(block)
        return BlockTable(table.namespace, blocks, list(table.path), table.num_computed)

    def release(self, table: BlockTable) -> None:
        """Give up all KV of the table. What is published stays cached until evicted."""
        self.truncate(table, 0)

    def withdraw(self, table: BlockTable) -> None:
        """Release a table whose KV is of no more use. What no other table holds is not kept in the cache either."""
        path = list(table.path)
        self.release(table)
        first = next((node for node in path if not node.referenced), None)
        for block in () if first is None else self._tree.remove(first):
            self._node_of[block] = None
            self._pool.recycle(block)

    def forget(self, namespace: Namespace, tokens: Sequence[TokenId], num_kept: int) -> int:
        """Take what nobody holds out of the cache: blocks along `tokens` with any after the first `num_kept`, and what
        goes on after them. What others went on from stays. Returns the number of blocks."""
        if num_kept >= len(tokens):
            return 0
        path = self._tree.match(namespace, None, tokens, len(tokens))
        rest = tuple(tokens[len(path) * self.block_size :])
        if path and len(rest) < self.block_size:
            path += self._tree.follow(path[-1], rest)
        cut = self._tree.cut(path[num_kept // self.block_size :])
        for block in cut:
            self._node_of[block] = None
            self._pool.recycle(block)
        return len(cut)

    def count_shared(self, table: BlockTable) -> int:
        """Blocks of the table that others hold as well."""
        return sum(1 for block in table.blocks if self._pool.num_references(block) > 1)

    def clear(self) -> None:
        """Forget all cached blocks. Every table must have been released."""
        for block in self._tree.clear():
            self._node_of[block] = None
            self._pool.recycle(block)

    def begin_step(self) -> None:
        """A step is in flight: what is freed from now on is not allocated before `end_step`.

        So from now on the sources of its copies need no holder.
        """
        self._pool.begin_step()
        self.drop_copies()

    def end_step(self) -> None:
        self._pool.end_step()

    def drop_copies(self) -> None:
        """The copies that were planned are safe, or never will be made."""
        for block in self._copied:
            self._free(block)
        self._copied.clear()

    def _allocate(self, count: int, after: BlockId | None) -> list[BlockId]:
        """Blocks that follow `after` in a sequence; first room for all of them, since what is evicted may be a run."""
        for _ in range(count - self._pool.num_free):
            block = self._tree.evict()
            assert block is not None, "no block is available"
            self._node_of[block] = None  # its key goes with it (B22)
            self._pool.recycle(block)
            self.num_evictions += 1
        blocks: list[BlockId] = []
        for _ in range(count):
            after = self._pool.allocate(after)
            blocks.append(after)
        return blocks

    def _retain(self, node: Node) -> None:
        assert node.block is not None
        if self._pool.retain(node.block):
            self._tree.mark_referenced(node)

    def _free(self, block: BlockId) -> None:
        if self._pool.free(block):
            node = self._node_of[block]
            assert node is not None
            self._tree.mark_unreferenced(node)

    def _free_blocks_from(self, table: BlockTable, index: int) -> None:
        # Last block first, so that the end of a sequence is evicted before its beginning.
        for block in reversed(table.blocks[index:]):
            self._free(block)
        del table.blocks[index:]

    def check_invariants(self, tables: Iterable[BlockTable]) -> None:
        """Compares every count with the tables given, which must be all there are."""
        tables = list(tables)
        self._pool.check_invariants([*(t.blocks for t in tables), self._copied])
        self._tree.check_invariants()
        for node in self._tree.nodes():
            assert node.block is not None
            assert self._node_of[node.block] is node
            assert self._pool.is_published(node.block)
            assert node.referenced == (self._pool.num_references(node.block) > 0)
        published = sum(1 for n in self._node_of if n is not None)
        assert published == self._tree.num_nodes, "a published block is in no tree"
        for table in tables:
            assert len(table.blocks) >= self.blocks_for(table.num_computed), "computed tokens without a block"
            assert [n.block for n in table.path] == table.blocks[: len(table.path)]
            full = table.num_computed // self.block_size
            assert len(table.path) == (full if self.prefix_cache else 0), "a full block is not published"
