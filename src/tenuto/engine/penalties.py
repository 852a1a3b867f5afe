"""Which ids a request has seen, and how often it generated them: counted as they come, never again from the start."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tenuto.engine.batch import SeenTokens
from tenuto.ids import TokenId
from tenuto.protocol.engine import SamplingParams


def counter_for(sampling: SamplingParams, prompt: Sequence[TokenId]) -> TokenCounter | None:
    """A counter for a call that begins after `prompt`; None if nothing is penalised."""
    if not sampling.has_penalties:
        return None
    return TokenCounter(prompt, with_prompt=sampling.repetition_penalty != 1)


class TokenCounter:
    """A function of the tokens and of the length of the prompt alone: preemption, forks and truncation before the call
    change nothing. It takes time with the prompt once, and then with each new id.

    Args:
        prompt: the tokens known when the call began, those of earlier turns and of a fork's parent among them.
        with_prompt: whether ids that stand in the prompt alone are listed too.
    """

    def __init__(self, prompt: Sequence[TokenId], *, with_prompt: bool) -> None:
        known = np.unique(np.array(prompt if with_prompt else (), dtype=np.int64))
        self._num_counted = len(prompt)
        self._slots = {token: slot for slot, token in enumerate(known.tolist())}
        self._ids = known
        self._counts = np.zeros(len(known), dtype=np.int64)

    def seen(self, tokens: Sequence[TokenId]) -> SeenTokens:
        """As of `tokens`, which are those of the last call and more. The arrays are the caller's own."""
        assert len(tokens) >= self._num_counted, "tokens were taken back within a call"
        for index in range(self._num_counted, len(tokens)):
            slot = self._slot(tokens[index])  # first: it may replace the arrays
            self._counts[slot] += 1
        self._num_counted = len(tokens)
        num_seen = len(self._slots)
        return SeenTokens(self._ids[:num_seen].copy(), self._counts[:num_seen].copy())

    def _slot(self, token: TokenId) -> int:
        slot = self._slots.setdefault(token, len(self._slots))
        if slot == len(self._ids):  # full
            grown = max(64, 2 * len(self._ids))
            self._ids, self._counts = (np.resize(old, grown) for old in (self._ids, self._counts))
            self._counts[slot:] = 0
        self._ids[slot] = token
        return slot
