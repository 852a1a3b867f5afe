from tenuto.engine.radix_tree import Namespace, Node, RadixTree
from tenuto.ids import BlockId, TokenId

SPACE = Namespace()


def key(*tokens: int) -> tuple[TokenId, ...]:
    return tuple(TokenId(t) for t in tokens)


def insert(tree: RadixTree, after: Node | None, tokens: tuple[TokenId, ...], block: int) -> Node:
    return tree.insert(SPACE, after, tokens, BlockId(block))


def test_matches_whole_blocks_only_and_up_to_the_limit() -> None:
    tree = RadixTree(2)
    first = insert(tree, None, key(1, 2), 0)
    second = insert(tree, first, key(3, 4), 1)
    assert tree.match(SPACE, None, key(1, 2, 3, 4, 5), 5) == [first, second]
    assert tree.match(SPACE, None, key(1, 2, 3, 4), 3) == [first]
    assert tree.match(SPACE, first, key(1, 2, 3, 4), 4) == [second]
    assert tree.match(SPACE, None, key(1, 9, 3, 4), 4) == []
    assert tree.match(SPACE, None, key(1, 2, 3, 9), 4) == [first]
    tree.check_invariants()


def test_same_tokens_below_another_prefix_are_another_block() -> None:
    tree = RadixTree(1)
    one = insert(tree, None, key(1), 0)
    two = insert(tree, None, key(2), 1)
    below_two = insert(tree, two, key(7), 2)
    assert tree.match(SPACE, None, key(1, 7), 2) == [one]
    assert tree.match(SPACE, None, key(2, 7), 2) == [two, below_two]


def test_keys_whose_hashes_collide_are_told_apart() -> None:
    # In CPython hash(-1) == hash(-2), so these two keys have the same hash.
    assert hash(key(-1)) == hash(key(-2))
    tree = RadixTree(1)
    insert(tree, None, key(-1), 0)
    assert tree.match(SPACE, None, key(-2), 1) == []


def test_namespaces_share_nothing() -> None:
    tree = RadixTree(1)
    node = insert(tree, None, key(1), 0)
    for other in (Namespace(epoch=1), Namespace(kv_type="int8"), Namespace(adapter="a"), Namespace(tenant="t")):
        assert tree.match(other, None, key(1), 1) == []
        assert tree.child(other, None, key(1)) is None
    assert tree.child(SPACE, None, key(1)) is node


def test_evicts_least_recently_used_leaves_first() -> None:
    tree = RadixTree(1)
    root = insert(tree, None, key(1), 0)
    old = insert(tree, root, key(2), 1)
    new = insert(tree, root, key(3), 2)
    for node in (new, old, new, root):  # `new` was used again after `old`
        tree.mark_referenced(node)
        tree.mark_unreferenced(node)
        tree.check_invariants()
    assert [tree.evict() for _ in range(4)] == [1, 2, 0, None]
    assert tree.num_nodes == 0
    tree.check_invariants()


def test_referenced_nodes_and_inner_nodes_stay() -> None:
    tree = RadixTree(1)
    root = insert(tree, None, key(1), 0)
    leaf = insert(tree, root, key(2), 1)
    tree.mark_unreferenced(leaf)
    tree.mark_referenced(leaf)
    assert tree.evict() is None
    tree.mark_unreferenced(leaf)
    assert tree.evict() == 1
    assert tree.evict() is None, "the root block is still held"


def test_clear_returns_all_blocks() -> None:
    tree = RadixTree(1)
    root = insert(tree, None, key(1), 4)
    leaf = insert(tree, root, key(2), 5)
    tree.mark_unreferenced(leaf)
    tree.mark_unreferenced(root)
    assert sorted(tree.clear()) == [4, 5]
    assert tree.evict() is None
    assert tree.match(SPACE, None, key(1), 1) == []


def test_stale_heap_entries_are_swept() -> None:
    tree = RadixTree(1)
    node = insert(tree, None, key(1), 0)
    for _ in range(1000):
        tree.mark_unreferenced(node)
        tree.mark_referenced(node)
    tree.mark_unreferenced(node)
    tree.check_invariants()
    assert tree.evict() == 0
