"""A grammar over token ids, for engine tests without text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tenuto.errors import GrammarError
from tenuto.ids import TokenId
from tenuto.protocol.grammar import GrammarSpec, TokenMask


class PatternGrammar:
    """Exactly one sequence of places, each with the ids it allows; a place with a single id forces it.

    Args:
        places: the allowed ids of each place; an empty set allows none (a grammar gone wrong).
    """

    def __init__(self, places: Sequence[frozenset[int]], vocab_size: int, at: int = 0) -> None:
        self._places = tuple(places)
        self._vocab_size = vocab_size
        self._at = at

    def mask(self) -> TokenMask:
        bits = np.zeros(-(-self._vocab_size // 32) * 32, dtype=np.uint8)
        if not self.finished:
            bits[list(self._places[self._at])] = 1
        return np.packbits(bits, bitorder="little").view(np.uint32)

    def accept(self, token: TokenId) -> bool:
        if self.finished or token not in self._places[self._at]:
            return False
        self._at += 1
        return True

    def forced(self) -> tuple[TokenId, ...]:
        ids: list[TokenId] = []
        for allowed in self._places[self._at :]:
            if len(allowed) != 1:
                break
            ids.extend(TokenId(t) for t in allowed)
        return tuple(ids)

    def rollback(self, num_tokens: int) -> None:
        assert num_tokens <= self._at, "nothing that far back was accepted"
        self._at -= num_tokens

    def fork(self) -> PatternGrammar:
        return PatternGrammar(self._places, self._vocab_size, self._at)

    @property
    def finished(self) -> bool:
        return self._at == len(self._places)


class PatternCompiler:
    """Compiles specs like `1 2 3,4,5 6`: places separated by spaces, the ids of a place by commas."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size

    def compile(self, spec: GrammarSpec) -> PatternGrammar:
        """Raises GrammarError for anything that is not such a pattern."""
        try:
            places = [frozenset(int(t) for t in place.split(",")) for place in spec.source.split()]
        except ValueError as error:
            raise GrammarError(f"not a pattern of token ids: {spec.source!r}") from error
        return PatternGrammar(places, self._vocab_size)
