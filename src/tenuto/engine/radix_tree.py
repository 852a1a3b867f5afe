"""Which published block holds the KV of which tokens."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from tenuto.ids import BlockId, TokenId

BlockKey: TypeAlias = tuple[TokenId, ...]  # the tokens of one full block


class Namespace(NamedTuple):
    """KV is shared only between sequences for which all of this is equal."""

    epoch: int = 0  # of the weights: another one after each reload
    kv_type: str = ""
    adapter: str = ""
    tenant: str = ""
    salt: str = ""
    origin: str = ""  # of KV that was not computed here, and so is not trusted: shared only within what was imported


class Node:
    """One published block; its prefix is the path from the root. `block` is None in a root only."""

    __slots__ = ("block", "children", "depth", "key", "namespace", "parent", "referenced", "serial", "stamp")

    def __init__(self, namespace: Namespace, parent: Node | None, key: BlockKey, block: BlockId | None) -> None:
        self.namespace = namespace
        self.parent = parent
        self.key = key
        self.block = block
        self.children: dict[BlockKey, Node] = {}
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.referenced = True
        self.stamp = 0  # when the block lost its last holder
        self.serial = 0


class RadixTree:
    """Block-wise radix tree; the keys are the tokens themselves, so that a match is a match of tokens.

    A lookup compares whole keys (a dict verifies equality after the hash), so a colliding hash cannot alias two
    prefixes. A node is `referenced` while a session holds its block. A session holds the whole path, therefore all
    descendants of an unreferenced node are unreferenced, and every unreferenced node can go, leaves first.

    Eviction is least recently used first, in O(log n): a heap of the leaves that became evictable, with stale
    entries skipped when they surface and swept when they are the majority.
    """

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.num_nodes = 0
        self._roots: dict[Namespace, Node] = {}
        self._heap: list[tuple[int, int, int, Node]] = []  # stamp, -depth, serial, node
        self._tick = 0
        self._serial = 0

    def match(self, namespace: Namespace, after: Node | None, tokens: Sequence[TokenId], max_tokens: int) -> list[Node]:
        """The longest path of blocks that continues `after` (None: the root) along `tokens`.

        `tokens` are those of the whole sequence, of which the first `max_tokens` may be matched.
        """
        node = after if after is not None else self._roots.get(namespace)
        found: list[Node] = []
        if node is None:
            return found
        size = self.block_size
        for end in range((node.depth + 1) * size, max_tokens + 1, size):
            node = node.children.get(tuple(tokens[end - size : end]))
            if node is None:
                break
            found.append(node)
        return found

    def child(self, namespace: Namespace, after: Node | None, key: BlockKey) -> Node | None:
        """The node of one more block, if published."""
        node = after if after is not None else self._roots.get(namespace)
        return None if node is None else node.children.get(key)

    def insert(self, namespace: Namespace, after: Node | None, key: BlockKey, block: BlockId) -> Node:
        """Publish a block, held by the caller, below `after` (None: the root)."""
        assert len(key) == self.block_size, "only full blocks are published"
        if after is None:
            parent = self._roots.get(namespace)
            if parent is None:
                parent = self._roots[namespace] = Node(namespace, None, (), None)
        else:
            parent = after
        assert key not in parent.children, "these tokens are published already"
        node = Node(namespace, parent, key, block)
        self._serial += 1
        node.serial = self._serial
        parent.children[key] = node
        self.num_nodes += 1
        return node

    def mark_referenced(self, node: Node) -> None:
        node.referenced = True

    def mark_unreferenced(self, node: Node) -> None:
        """The block lost its last holder: it is the most recently used of those that may go."""
        self._tick += 1
        node.referenced = False
        node.stamp = self._tick
        self._offer(node)

    def evict(self) -> BlockId | None:
        """Remove the least recently used unreferenced leaf; its block, or None if there is none."""
        while self._heap:
            stamp, _, _, node = heapq.heappop(self._heap)
            if not node.referenced and stamp == node.stamp and not node.children and node.parent is not None:
                block = node.block
                assert block is not None
                self._remove(node)
                return block
        return None

    def remove(self, node: Node) -> list[BlockId]:
        """Remove an unreferenced node and everything below it; their blocks."""
        blocks: list[BlockId] = []
        for each in reversed([node, *self._walk(node)]):  # children before their parents
            assert each.block is not None
            assert not each.referenced, "a referenced block cannot be removed"
            blocks.append(each.block)
            self._remove(each)
        return blocks

    def follow(self, node: Node, start: BlockKey) -> list[Node]:
        """The nodes below as long as there is one way on; the first of them begins with `start`."""
        found: list[Node] = []
        while True:
            ways = [child for key, child in node.children.items() if key[: len(start)] == start]
            if len(ways) != 1:
                return found
            node, start = ways[0], ()
            found.append(node)

    def cut(self, path: Sequence[Node]) -> list[BlockId]:
        """Remove the end of a path, up to a node that is referenced or has other nodes below; the blocks removed."""
        blocks: list[BlockId] = []
        for node in reversed(path):
            if node.referenced or node.children:
                break
            assert node.block is not None
            blocks.append(node.block)
            self._remove(node)
        return blocks

    def clear(self) -> list[BlockId]:
        """Remove every node, none of which may be referenced; their blocks."""
        nodes = list(self.nodes())
        assert not any(n.referenced for n in nodes), "a referenced block cannot be removed"
        for node in nodes:
            node.parent = None
            node.children = {}
        self._roots.clear()
        self._heap.clear()
        self.num_nodes = 0
        return [n.block for n in nodes if n.block is not None]

    def nodes(self) -> Iterator[Node]:
        for root in self._roots.values():
            yield from self._walk(root)

    def _walk(self, root: Node) -> Iterator[Node]:
        stack = list(root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def _remove(self, node: Node) -> None:
        parent = node.parent
        assert parent is not None
        assert not node.children
        del parent.children[node.key]
        node.parent = None
        self.num_nodes -= 1
        if parent.block is not None:
            self._offer(parent)
        elif not parent.children:
            del self._roots[parent.namespace]

    def _offer(self, node: Node) -> None:
        """A node that may have become an unreferenced leaf."""
        if node.referenced or node.children:
            return
        heapq.heappush(self._heap, (node.stamp, -node.depth, node.serial, node))
        if len(self._heap) > 2 * self.num_nodes + 64:
            self._heap = [e for e in self._heap if self._is_current(e)]
            heapq.heapify(self._heap)

    def _is_current(self, entry: tuple[int, int, int, Node]) -> bool:
        node = entry[3]
        return not node.referenced and not node.children and node.parent is not None and entry[0] == node.stamp

    def check_invariants(self) -> None:
        listed = {id(e[3]) for e in self._heap if self._is_current(e)}
        count = 0
        for node in self.nodes():
            count += 1
            parent = node.parent
            assert parent is not None
            assert parent.children[node.key] is node
            assert len(node.key) == self.block_size
            assert node.depth == parent.depth + 1
            if node.referenced and parent.block is not None:
                assert parent.referenced, "a referenced block's prefix is unreferenced"
            if not node.referenced and not node.children:
                assert id(node) in listed, "an evictable leaf is not offered for eviction"
        assert count == self.num_nodes, "the count of nodes is wrong"
        assert all(root.children for root in self._roots.values()), "an empty root is kept"
