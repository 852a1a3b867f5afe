"""The tree against a dict from whole prefixes to blocks, with a list in order of use."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tenuto.engine.radix_tree import Namespace, Node, RadixTree
from tenuto.ids import BlockId, TokenId

SIZE = 2
SEQUENCES = st.lists(st.integers(0, 1).map(TokenId), min_size=SIZE, max_size=8)
NAMESPACES = st.sampled_from([Namespace(), Namespace(tenant="t"), Namespace(epoch=1)])
Prefix = tuple[Namespace, tuple[TokenId, ...]]


class TreeMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.tree = RadixTree(SIZE)
        self.nodes: dict[Prefix, Node] = {}
        self.holders: list[list[Prefix]] = []  # paths in use
        self.used: dict[Prefix, tuple[int, int]] = {}  # when it lost its last holder
        self.tick = 0
        self.num_blocks = 0

    def is_held(self, prefix: Prefix) -> bool:
        return any(prefix in path for path in self.holders)

    def leaves(self) -> list[Prefix]:
        parents = {(space, tokens[:-SIZE]) for space, tokens in self.nodes}
        return [p for p in self.nodes if p not in parents and not self.is_held(p)]

    @rule(space=NAMESPACES, tokens=SEQUENCES)
    def hold(self, space: Namespace, tokens: list[TokenId]) -> None:
        """A session computes these tokens: it takes what is there and publishes the rest."""
        found = self.tree.match(space, None, tokens, len(tokens))
        path: list[Prefix] = []
        after: Node | None = None
        for end in range(SIZE, len(tokens) + 1, SIZE):
            prefix = (space, tuple(tokens[:end]))
            path.append(prefix)
            key = tuple(tokens[end - SIZE : end])
            node = self.tree.child(space, after, key)
            assert node is self.nodes.get(prefix)
            assert (node is not None) == (len(found) >= end // SIZE)
            if node is None:
                node = self.tree.insert(space, after, key, BlockId(self.num_blocks))
                self.num_blocks += 1
                self.nodes[prefix] = node
            elif not self.is_held(prefix):
                self.tree.mark_referenced(node)
            after = node
        self.holders.append(path)

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        path = self.holders.pop(data.draw(st.integers(0, len(self.holders) - 1)))
        for prefix in reversed(path):
            if not self.is_held(prefix):
                self.tick += 1
                self.used[prefix] = (self.tick, 0)
                self.tree.mark_unreferenced(self.nodes[prefix])

    @rule()
    def evict(self) -> None:
        candidates = self.leaves()
        block = self.tree.evict()
        if not candidates:
            assert block is None
            return
        oldest = min(candidates, key=lambda p: self.used[p])
        assert block == self.nodes.pop(oldest).block

    @precondition(lambda self: not self.holders)
    @rule()
    def clear(self) -> None:
        assert sorted(self.tree.clear()) == sorted(n.block for n in self.nodes.values() if n.block is not None)
        self.nodes.clear()

    @rule(space=NAMESPACES, tokens=SEQUENCES, cut=st.integers(0, 8))
    def match(self, space: Namespace, tokens: list[TokenId], cut: int) -> None:
        limit = min(cut, len(tokens))
        wanted = []
        for end in range(SIZE, limit + 1, SIZE):
            node = self.nodes.get((space, tuple(tokens[:end])))
            if node is None:
                break
            wanted.append(node)
        assert self.tree.match(space, None, tokens, limit) == wanted

    @invariant()
    def consistent(self) -> None:
        self.tree.check_invariants()
        assert self.tree.num_nodes == len(self.nodes)


TestTree = TreeMachine.TestCase
TestTree.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
