"""The ids of one plain completion, as they come, to text and scores."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from tenuto.chat.scores import token_score
from tenuto.chat.stop_strings import StopMatcher
from tenuto.ids import TokenId
from tenuto.protocol.chat import TextDelta, TokenScore, TokensScored
from tenuto.protocol.engine import TokenLogprob
from tenuto.text.detokenizer import Detokenizer
from tenuto.text.tokenizer import Tokenizer


class PlainTextReader:
    """Detokenizes and matches stop strings. A character that the end cuts in two is dropped.

    Scores come before the text that their token completes; tokens of a stop string, or of half a character alone, are
    not scored.
    """

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str], choice: int) -> None:
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer, at_start=False)
        self._stop = StopMatcher(stops)
        self._choice = choice
        self._num_read = self._num_emitted = 0  # characters
        self._waiting: deque[tuple[int, TokenScore]] = deque()  # (characters that must be out, score)

    @property
    def stopped(self) -> bool:
        """A stop string was found: the text is over."""
        return self._stop.matched

    def push_all(self, ids: Sequence[TokenId], logprobs: Sequence[TokenLogprob]) -> Iterator[TextDelta | TokensScored]:
        """The events that ids complete, up to a stop string. Not for the id that ends the text.

        Args:
            logprobs: one for each id, or none at all.
        """
        assert len(logprobs) in (0, len(ids))
        for place, token in enumerate(ids):
            if self.stopped:
                return
            text = self._detokenizer.push(token)
            self._num_read += len(text)
            if logprobs:
                end = self._num_read + (not text and self._detokenizer.is_holding)
                self._waiting.append((end, token_score(self._tokenizer, token, logprobs[place])))
            yield from self._emit(self._stop.push(text))

    def finish(self) -> Iterator[TextDelta | TokensScored]:
        """What was held back. Not after a stop string."""
        yield from self._emit(self._stop.flush())

    def _emit(self, text: str) -> Iterator[TextDelta | TokensScored]:
        self._num_emitted += len(text)
        scores = []
        while self._waiting and self._waiting[0][0] <= self._num_emitted:
            scores.append(self._waiting.popleft()[1])
        if scores:
            yield TokensScored(tokens=tuple(scores), choice=self._choice)
        if text:
            yield TextDelta(text=text, choice=self._choice)
