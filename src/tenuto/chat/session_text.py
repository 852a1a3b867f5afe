"""The ids that a session gains, as they come, with their text; and which of them stay where a stop string cuts."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.chat.scores import token_score
from tenuto.chat.stop_strings import StopMatcher
from tenuto.ids import TokenId
from tenuto.protocol.chat import TokenScore
from tenuto.protocol.engine import TokenLogprob
from tenuto.protocol.sessions import SessionDelta
from tenuto.text.detokenizer import Detokenizer
from tenuto.text.tokenizer import Position, Tokenizer


class SessionTextReader:
    """Detokenizes and matches stop strings. Ids are given out once it is certain that they stay.

    Args:
        position: where the ids stand in what the session holds.
    """

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[str], position: Position) -> None:
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer, at_start=position != "inside")
        self._stop = StopMatcher(stops)
        self._has_stops = bool(stops)
        self._position = position
        self._ids: list[TokenId] = []  # not given out yet
        self._scores: list[TokenScore] = []
        self._text = ""  # of these, what stands before any stop string
        self.num_given = 0  # ids

    @property
    def found(self) -> str | None:
        """The stop string that came: the text is over."""
        return self._stop.found

    def push(self, ids: Sequence[TokenId], logprobs: Sequence[TokenLogprob]) -> SessionDelta | None:
        """What ids complete, up to a stop string; None if that is nothing yet.

        Args:
            logprobs: one for each id, or none at all.
        """
        assert len(logprobs) in (0, len(ids))
        if not self._has_stops:
            return self._pass_on(ids, logprobs) if ids else None
        settled: tuple[int, int] | None = None
        for place, token in enumerate(ids):
            if self.found is not None:
                break
            self._ids.append(token)
            if logprobs:
                self._scores.append(token_score(self._tokenizer, token, logprobs[place]))
            self._text += self._stop.push(self._detokenizer.push(token))
            is_holding = self._stop.is_holding or self._detokenizer.is_holding
            if not is_holding and self.found is None:
                settled = len(self._ids), len(self._text)
        return None if settled is None else self._give(*settled)

    def _pass_on(self, ids: Sequence[TokenId], logprobs: Sequence[TokenLogprob]) -> SessionDelta:
        """No stop string can come: every id stays."""
        self.num_given += len(ids)
        scores = [token_score(self._tokenizer, *one) for one in zip(ids, logprobs, strict=False)]
        return SessionDelta(ids=tuple(ids), text="".join(map(self._detokenizer.push, ids)), scores=tuple(scores))

    def finish(self, stop: Sequence[TokenId] = (), logprobs: Sequence[TokenLogprob] = ()) -> SessionDelta | None:
        """What was held back, where no stop string came. A character that the end cuts in two is not in the text.

        Args:
            stop: the stop id, if one came: it has no text.
            logprobs: of that id, if asked for.
        """
        self._text += self._stop.flush()
        self._ids += stop
        self._scores += [token_score(self._tokenizer, *one) for one in zip(stop, logprobs, strict=False)]
        return self._give(len(self._ids), len(self._text)) if self._ids else None

    def cut(self) -> tuple[SessionDelta | None, tuple[TokenId, ...]]:
        """Where a stop string came: the last ids that stay, and those to add, which spell what is left of the text."""
        num_kept, num_bytes = self._fitting()
        rest = self._text.encode()[num_bytes:].decode()
        position = "inside" if self.num_given or num_kept else self._position
        added = tuple(self._tokenizer.encode(rest, position)) if rest else ()
        if not num_kept and not rest:
            return None, ()
        delta = self._give(num_kept, len(self._text))
        return SessionDelta(ids=(*delta.ids, *added), text=delta.text, scores=delta.scores), added

    def _fitting(self) -> tuple[int, int]:
        """How many of the ids held back say nothing but the text, and how many bytes of it; no character is cut."""
        text = self._text.encode()
        strips = self._tokenizer.strips_space and self._position != "inside" and not self.num_given
        end, best = 0, (0, 0)
        for place, token in enumerate(self._ids):
            piece = self._tokenizer.token_bytes(token)
            if strips and piece:
                piece, strips = piece.removeprefix(b" "), False
            if text[end : end + len(piece)] != piece:
                break
            end += len(piece)
            if end == len(text) or text[end] & 0xC0 != 0x80:
                best = place + 1, end
            if end == len(text):
                break
        return best

    def _give(self, num_ids: int, num_chars: int) -> SessionDelta:
        delta = SessionDelta(
            ids=tuple(self._ids[:num_ids]), text=self._text[:num_chars], scores=tuple(self._scores[:num_ids])
        )
        del self._ids[:num_ids], self._scores[:num_ids]
        self._text = self._text[num_chars:]
        self.num_given += num_ids
        return delta
