"""The prefix cache of a scripted engine: which blocks of tokens would be found again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tenuto.ids import TokenId


class ScriptedPrefixes:
    """A prefix cache without KV: the full blocks that some session computed, as a trie of token blocks."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._root: dict[tuple[TokenId, ...], Any] = {}

    def _blocks(self, tokens: Sequence[TokenId]) -> Iterable[tuple[TokenId, ...]]:
        size = self._block_size
        return (tuple(tokens[at : at + size]) for at in range(0, len(tokens) - size + 1, size))

    def match(self, tokens: Sequence[TokenId]) -> int:
        node, num_tokens = self._root, 0
        for block in self._blocks(tokens):
            if block not in node:
                break
            node, num_tokens = node[block], num_tokens + self._block_size
        return num_tokens

    def insert(self, tokens: Sequence[TokenId]) -> None:
        node = self._root
        for block in self._blocks(tokens):
            node = node.setdefault(block, {})

    def forget(self, tokens: Sequence[TokenId], num_kept: int, held: Sequence[Sequence[TokenId]]) -> int:
        """As `EngineClient.release`: blocks along `tokens`, and on, that hold any after the first `num_kept`; none that
        lies on the way of what is `held`, nor any that something else goes on from. How many are gone."""
        if num_kept >= len(tokens):
            return 0
        way: list[tuple[dict[tuple[TokenId, ...], Any], tuple[TokenId, ...]]] = []  # node, and the block to the next
        node = self._root
        for block in self._blocks(tokens):
            if block not in node:
                break
            way.append((node, block))
            node = node[block]
        rest = tuple(tokens[len(way) * self._block_size :])
        while way and len(rest) < self._block_size:
            ways_on = [block for block in node if block[: len(rest)] == rest]
            if len(ways_on) != 1:
                break
            way.append((node, ways_on[0]))
            node, rest = node[ways_on[0]], ()
        num_gone = 0
        whole = [token for _, block in way for token in block]
        while len(way) > num_kept // self._block_size:
            node, block = way.pop()
            end = (len(way) + 1) * self._block_size
            if node[block] or any(list(ids[:end]) == whole[:end] for ids in held):
                break
            del node[block]
            num_gone += 1
        return num_gone
