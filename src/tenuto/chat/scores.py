"""Log-probabilities of a reply's tokens, in the words of the chat room, and not before the text they belong to."""

from __future__ import annotations

from collections import deque

import msgspec

from tenuto.ids import TokenId
from tenuto.protocol.chat import ModelEvent, ScoredToken, TokenScore, TokensScored
from tenuto.protocol.engine import TokenLogprob
from tenuto.text.tokenizer import Tokenizer


def token_score(tokenizer: Tokenizer, token: TokenId, logprob: TokenLogprob) -> TokenScore:
    """A token's score with what the tokens stand for."""

    def scored(one: TokenId, value: float) -> ScoredToken:
        return ScoredToken(id=one, data=tokenizer.text_bytes(one), logprob=value)

    top = tuple(scored(other, value) for other, value in logprob.top)
    return TokenScore(token=scored(token, logprob.logprob), top=top, forced=logprob.forced)


class ScoreBook:
    """Holds scores back until it is certain that the reply keeps their tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._waiting: deque[TokenScore] = deque()
        self._num_released = 0

    def add(self, token: TokenId, logprob: TokenLogprob) -> None:
        """The next id of the reply."""
        self._waiting.append(token_score(self._tokenizer, token, logprob))

    def release(self, num_tokens: int, num_reasoning: int = 0) -> list[ModelEvent]:
        """The event of what was not yet given out of the first `num_tokens`; none if that is nothing.

        Args:
            num_reasoning: so many of the reply's first tokens are its reasoning.
        """
        count = min(num_tokens - self._num_released, len(self._waiting))
        if count <= 0:
            return []
        scores = [self._waiting.popleft() for _ in range(count)]
        for place in range(min(num_reasoning - self._num_released, count)):
            scores[place] = msgspec.structs.replace(scores[place], reasoning=True)
        self._num_released += count
        return [TokensScored(tokens=tuple(scores))]
