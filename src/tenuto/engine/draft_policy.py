"""How many tokens to draft: pure functions over what is known of a session and of the step.

A draft is worth its row if the chance that it is right exceeds the part of a token's cost that a row costs. A step that
computes R rows takes about `a + b R`: `a` for streaming weights, `b` for each row's arithmetic. With `n` sequences that
each get a token, a token costs `(a + b n) / n`, a further row `b`. So the chance must exceed `n / (n + a / b)`: little
where one agent runs alone, much where many share the weights.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

_MAX_WEIGHT = 32.0  # guesses that an estimate remembers, about
_MARGIN = 1.3  # a draft must pay clearly: chances are estimates, and a row costs more than its arithmetic
_MAX_WORTH = 0.97  # what repeats without end is drafted in any company


class Estimate(msgspec.Struct, frozen=True):
    """How often the next token was guessed right."""

    chance: float
    weight: float  # guesses it rests on

    def after(self, hit: bool) -> Estimate:
        """With one guess more. Old ones fade, so that it follows what the text does now."""
        weight = min(self.weight + 1, _MAX_WEIGHT)
        return Estimate(self.chance + (hit - self.chance) / weight, weight)


Estimates: TypeAlias = tuple[Estimate, ...]
"""One for each class of match lengths: 1; 2 and 3; 4 to 7; 8 to 15; 16 and longer."""

_NUM_CLASSES = 5
UNKNOWN: Estimates = tuple(Estimate(chance, 8) for chance in (0.1, 0.2, 0.5, 0.75, 0.9))
"""Before anything was guessed: the longer a match, the likelier it goes on."""


def class_of(length: int) -> int:
    """The place in `Estimates` for matches of so many tokens, one or more."""
    return min(length.bit_length(), _NUM_CLASSES) - 1


def learned(estimates: Estimates, length: int, hit: bool) -> Estimates:
    """After a guess from a match of `length` tokens.

    Guesses are compared with what was chosen in any case, whether they were drafted or not: finding out that drafts
    would pay again costs no row.
    """
    place = class_of(length)
    return (*estimates[:place], estimates[place].after(hit), *estimates[place + 1 :])


def worth(num_decodes: int, step_rows: float) -> float:
    """The chance above which a draft is worth its row.

    Args:
        num_decodes: sequences that get a token in this step.
        step_rows: `a / b`, rows that take as long to compute as the weights take to stream.
    """
    return min(_MAX_WORTH, _MARGIN * num_decodes / (num_decodes + step_rows))


def draft_length(estimates: Estimates, length: int, least_chance: float, max_drafts: int) -> int:
    """How many tokens to draft after a match of `length` tokens: as long as all of them are right by more than
    `least_chance`. Each that is right makes the match longer, and the next likelier.
    """
    chance = 1.0
    for count in range(max_drafts):
        chance *= estimates[class_of(length + count)].chance
        if chance <= least_chance:
            return count
    return max(0, max_drafts)
