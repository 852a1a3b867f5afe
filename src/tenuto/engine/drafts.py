"""Drafts without a model: what followed when the last tokens of a session stood there before.

Agents repeat themselves and what they were told: arguments, quotes, code, the skeleton of a call. The continuation of
the longest earlier match of a sequence's end is a good guess at what comes next (Saxena, "Prompt lookup decoding",
2023; Oliaro et al., "SuffixDecoding", 2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from tenuto.ids import TokenId

MAX_INDEXED = 8192  # tokens of one session; of a longer one its end, and twice as many at most
_TOKEN_BITS = 32
_PAIR = (1 << 2 * _TOKEN_BITS) - 1
_FOUR = (1 << 4 * _TOKEN_BITS) - 1
LONG_MATCH = 4
"""From here on a match is followed as long as it goes on, without a look at other places."""
_MAX_COMPARED = 32  # tokens looked back to measure a match


class SuffixIndex:
    """The latest place of each single token, pair and quadruple in one growing sequence, and the match of its end.

    Each token takes O(1), amortised, and about 0.2 KB. A sequence may only grow; see `forget`.
    """

    __slots__ = ("_fours", "_key", "_pairs", "_singles", "length", "num_indexed", "place")

    def __init__(self) -> None:
        self.num_indexed = 0  # tokens seen so far
        self.place = 0  # tokens before this place equal those at the end; 0: no match
        self.length = 0  # so many of them at least
        self._key = _FOUR  # the last four tokens; before the first, an id that no token has
        self._singles: dict[int, int] = {}
        self._pairs: dict[int, int] = {}
        self._fours: dict[int, int] = {}

    def follow(self, tokens: Sequence[TokenId]) -> None:
        """Take in the tokens that are new since the last call."""
        num_new = len(tokens) - self.num_indexed
        if num_new <= 0:
            return
        if num_new > MAX_INDEXED or len(self._fours) + num_new > 2 * MAX_INDEXED:
            self._start_over(max(0, len(tokens) - MAX_INDEXED))
        if self.num_indexed < len(tokens) - 1:
            self._fill(tokens, len(tokens) - 1)
            self.place = self.length = 0
        self._add_last(tokens)

    def forget(self, num_tokens: int) -> None:
        """The sequence was cut back to its first `num_tokens`; it is taken in anew when needed."""
        if num_tokens < self.num_indexed:
            self._start_over(0)

    def propose(self, tokens: Sequence[TokenId], count: int) -> list[TokenId]:
        """The `count` tokens that followed the match, none if there is no match.

        A match that reaches the end of the sequence goes on in the proposal itself: something repeats with a period.
        """
        assert self.num_indexed == len(tokens), "the index has not followed"
        if not self.place:
            return []
        proposal = list(tokens[self.place : self.place + count])
        period = len(tokens) - self.place
        while len(proposal) < count:
            proposal.append(proposal[len(proposal) - period])
        return proposal

    def _start_over(self, at: int) -> None:
        self._singles.clear()
        self._pairs.clear()
        self._fours.clear()
        self.num_indexed, self._key, self.place, self.length = at, _FOUR, 0, 0

    def _fill(self, tokens: Sequence[TokenId], end: int) -> None:
        """Note the places of all tokens up to `end`, without a look for matches."""
        singles, pairs, fours, key = self._singles, self._pairs, self._fours, self._key
        place = self.num_indexed
        for token in islice(tokens, place, end):
            place += 1
            key = (key << _TOKEN_BITS | token) & _FOUR
            singles[token] = place
            pairs[key & _PAIR] = place
            fours[key] = place
        self._key, self.num_indexed = key, end

    def _add_last(self, tokens: Sequence[TokenId]) -> None:
        """Note the place of the last token, and find where the end of the sequence stood before."""
        end = len(tokens)
        token = tokens[-1]
        key = self._key = (self._key << _TOKEN_BITS | token) & _FOUR
        if self.place and tokens[self.place] == token:
            self.place += 1
            self.length += 1
        else:
            self.place = self.length = 0
        pair = key & _PAIR
        if self.length < LONG_MATCH:
            # Where more tokens are the same, a shorter look would find no longer match.
            place = self._fours.get(key) or self._pairs.get(pair) or self._singles.get(token)
            if place and (length := _common(tokens, place)) > self.length:
                self.place, self.length = place, length
        self._singles[token] = self._pairs[pair] = self._fours[key] = end
        self.num_indexed = end


def _common(tokens: Sequence[TokenId], place: int) -> int:
    """How many tokens before `place` equal those at the end."""
    limit = min(place, _MAX_COMPARED)
    length = 0
    while length < limit and tokens[place - 1 - length] == tokens[-1 - length]:
        length += 1
    return length
