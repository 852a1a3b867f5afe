"""The text of a workload, and its tokens: frozen values that follow from the shape alone."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from tenuto.bench.shape import Shape
from tenuto.bench.words import make_words
from tenuto.ids import TokenId


class TextWorkload(msgspec.Struct, frozen=True):
    """What the agents read."""

    shape: Shape
    system: str  # the same for all
    results: tuple[tuple[str, ...], ...]  # [agents][turns]: the user's request first, then results of tools


class TokenWorkload(msgspec.Struct, frozen=True):
    """The same in ids of one vocabulary."""

    shape: Shape
    pieces: tuple[tuple[tuple[TokenId, ...], ...], ...]  # [agents][turns]; the first begins with the system prompt

    def num_tokens(self, agent: int) -> int:
        """How long the session of an agent is at the end."""
        return sum(map(len, self.pieces[agent])) + self.shape.turns * self.shape.output_tokens

    @property
    def num_in(self) -> int:
        """Ids that are given, not generated; what all agents share is counted for each."""
        return sum(len(piece) for pieces in self.pieces for piece in pieces)

    @property
    def num_out(self) -> int:
        return self.shape.agents * self.shape.turns * self.shape.output_tokens

    def first_agents(self, count: int) -> TokenWorkload:
        """The workload of the first `count` agents alone."""
        return TokenWorkload(self.shape.with_agents(count), self.pieces[:count])


def make_texts(shape: Shape) -> TextWorkload:
    """The same shape gives the same text; an agent's text does not depend on how many agents there are."""
    system = "You work through tasks with tools. " + make_words(_rng(shape, "system"), shape.prompt_words)
    results = tuple(
        tuple(make_words(_rng(shape, f"{agent}/{turn}"), shape.result_words) for turn in range(shape.turns))
        for agent in range(shape.agents)
    )
    return TextWorkload(shape, system, results)


def encode_texts(texts: TextWorkload, encode: Callable[[str], list[TokenId]]) -> TokenWorkload:
    """Args:
    encode: text that goes on from earlier text to ids, without control tokens.
    """
    system = encode(texts.system)
    pieces = tuple(
        tuple(
            tuple([*system, *encode(f"\n\nTask: {text}\n\n")] if turn == 0 else encode(f"\n\nResult: {text}\n\n"))
            for turn, text in enumerate(results)
        )
        for results in texts.results
    )
    return TokenWorkload(texts.shape, pieces)


def _rng(shape: Shape, part: str) -> random.Random:
    return random.Random(f"{shape.seed}/{part}")
