"""A grammar that begins where a reply's thinking ends.

From its first token on, a grammar would keep the model from thinking. So nothing is held to it until the closing tag
has been read; where the prompt has not opened the thinking, the first tokens are the grammar's or the opening tag. Tags
are found in the bytes of tokens, be they one token or several.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np

from tenuto.ids import TokenId
from tenuto.protocol.grammar import ReasoningFrame, TokenGrammar, TokenMask
from tenuto.text.tokenizer import Tokenizer

_MAX_UNDONE = 256  # tokens that can be undone, far more than are ever guessed ahead
_MAX_SPACE_BYTES = 4  # after the closing tag, where models were trained on an empty line


class ReasoningWords:
    """What the tokens of a vocabulary do to the tags; made once for each pair. Not bound to a sequence."""

    def __init__(self, tokenizer: Tokenizer, frame: ReasoningFrame) -> None:
        self.open, self.close = frame.open.encode(), frame.close.encode()
        self._num_words = (tokenizer.vocab_size + 31) // 32
        self._by_first: dict[int, list[TokenId]] = {}
        self._texts: dict[TokenId, bytes] = {}  # of the tokens that thinking may hold
        for token in map(TokenId, range(tokenizer.vocab_size)):
            text = tokenizer.token_bytes(token)
            if text and token not in tokenizer.eos_ids:
                self._texts[token] = text
                self._by_first.setdefault(text[0], []).append(token)
        self._any = self._bits(self._texts)
        whole = [t for t, text in self._texts.items() if self.close in text and _is_more(text.partition(self.close)[2])]
        self._crossing = [self._bits(whole)]  # by the number of bytes of the closing tag that were read before
        self._crossing += [self._bits(self._beyond(self.close[n:])) for n in range(1, len(self.close))]
        self._opening = [self._bits(self._towards(self.open[n:])) for n in range(len(self.open))]
        spaces = {token: len(text) for token, text in self._texts.items() if text.isspace()}
        self._space = [self._bits(t for t, n in spaces.items() if n <= most) for most in range(_MAX_SPACE_BYTES + 1)]

    def _bits(self, tokens: Iterable[TokenId]) -> TokenMask:
        bits = np.zeros(self._num_words * 32, dtype=np.uint8)
        bits[np.fromiter(tokens, dtype=np.int64)] = 1
        return np.packbits(bits, bitorder="little").view("<u4").astype(np.uint32)

    def _beyond(self, rest: bytes) -> list[TokenId]:
        """Tokens that complete a tag and say more after it than may follow."""
        found = self._by_first.get(rest[0], ())
        return [t for t in found if self._texts[t].startswith(rest) and _is_more(self._texts[t][len(rest) :])]

    def _towards(self, rest: bytes) -> list[TokenId]:
        """Tokens that go on with a tag, to its end or beyond."""
        found = self._by_first.get(rest[0], ())
        return [t for t in found if rest.startswith(self._texts[t]) or self._texts[t].startswith(rest)]

    def text(self, token: TokenId) -> bytes | None:
        """None: thinking cannot hold the token, it ends the turn or means structure."""
        return self._texts.get(token)

    def space(self, read: bytes) -> TokenMask:
        """Tokens of white space that there is room for after so much of it."""
        return self._space[_MAX_SPACE_BYTES - len(read)]

    def opening(self, read: bytes) -> TokenMask:
        """Tokens that go on with the opening tag after what was read."""
        return self._opening[len(read.lstrip())]

    def thinking(self, tail: bytes) -> TokenMask:
        """All tokens but those that end the turn, or close the thinking in their middle: what follows must obey.

        Args:
            tail: the last bytes of the thinking.
        """
        mask = self._any & ~self._crossing[0]
        for num_read in range(1, len(self.close)):
            if tail.endswith(self.close[:num_read]):
                mask &= ~self._crossing[num_read]
        return mask


def _is_more(after: bytes) -> bool:
    return bool(after.strip()) or len(after) > _MAX_SPACE_BYTES


class _Place(NamedTuple):
    """Where in the reply the sequence stands."""

    part: Literal["free", "thinking", "gap", "inside"]  # gap: right after the closing tag
    read: bytes = b""  # free: all that may become the opening tag; thinking: its last bytes; gap: white space


class _Step(NamedTuple):
    """What is needed to undo a token."""

    place: _Place
    grammar: TokenGrammar | None
    is_accepted: bool  # by that grammar


class AfterReasoning:
    """Implements `protocol.TokenGrammar` around another. Not thread-safe. The last 256 tokens can be undone.

    Args:
        grammar: at its beginning.
        is_open: the prompt ends in the middle of thinking.
    """

    def __init__(self, grammar: TokenGrammar, words: ReasoningWords, is_open: bool) -> None:
        self._fresh = grammar  # never advanced, so copies of this may share it
        self._words = words
        self._place = _Place("thinking" if is_open else "free")
        self._grammar = None if is_open else grammar.fork()  # None: the next token is none of its
        self._steps: list[_Step] = []

    def mask(self) -> TokenMask:
        place, words = self._place, self._words
        if place.part == "thinking":
            return words.thinking(place.read)
        if place.part == "free" and self._grammar is None:
            return words.opening(place.read)
        assert self._grammar is not None
        mask = self._grammar.mask()
        if place.part == "free":
            return mask | words.opening(place.read)
        return mask | words.space(place.read) if place.part == "gap" else mask

    def accept(self, token: TokenId) -> bool:
        step = _Step(self._place, self._grammar, False)
        match self._place.part:
            case "free":
                is_ok, by_grammar = self._accept_free(token)
            case "thinking":
                text = self._words.text(token)
                is_ok, by_grammar = text is not None and self._think(self._place.read + text), False
            case "gap" if (text := self._words.text(token)) is not None and text.isspace():
                is_ok, by_grammar = self._pass(self._place.read + text), False
            case _:
                assert self._grammar is not None
                is_ok = by_grammar = self._grammar.accept(token)
                self._place = _Place("inside") if is_ok else self._place
        if is_ok:
            self._steps.append(step._replace(is_accepted=by_grammar))
            if len(self._steps) == 2 * _MAX_UNDONE:
                del self._steps[:_MAX_UNDONE]
        return is_ok

    def _accept_free(self, token: TokenId) -> tuple[bool, bool]:
        """Whether the token may come, and whether the grammar has taken it."""
        tag, grammar = self._words.open, self._grammar
        by_grammar = grammar is not None and grammar.accept(token)
        text = self._words.text(token)
        read = self._place.read + (text or b"")
        begin = read.lstrip()
        if text is not None and begin.startswith(tag) and self._think(begin[len(tag) :]):
            if by_grammar and grammar is not None:
                grammar.rollback(1)
            return True, False
        if text is not None and tag.startswith(begin) and (begin or by_grammar):
            self._place = _Place("free", read)
            self._grammar = grammar if by_grammar else None
            return True, by_grammar
        self._place = _Place("inside") if by_grammar else self._place
        return by_grammar, by_grammar

    def _think(self, data: bytes) -> bool:
        """Go on in the thinking with the bytes that may hold its end; False if they say more after that."""
        close = self._words.close
        found = data.find(close)
        if found < 0:
            self._place, self._grammar = _Place("thinking", data[-len(close) :]), None
            return True
        rest = data[found + len(close) :]
        if rest.strip() or not self._pass(rest):
            return False
        self._grammar = self._fresh.fork()
        return True

    def _pass(self, space: bytes) -> bool:
        """Go over the white space after the closing tag, all of it so far; False if it is too much."""
        if len(space) > _MAX_SPACE_BYTES:
            return False
        self._place = _Place("gap", space)
        return True

    def forced(self) -> tuple[TokenId, ...]:
        if self._place.part != "inside":
            return ()
        assert self._grammar is not None
        return self._grammar.forced()

    def rollback(self, num_tokens: int) -> None:
        assert num_tokens <= len(self._steps), f"cannot undo {num_tokens} tokens of {len(self._steps)}"
        for _ in range(num_tokens):
            self._place, self._grammar, is_accepted = self._steps.pop()
            if is_accepted and self._grammar is not None:
                self._grammar.rollback(1)

    def fork(self) -> AfterReasoning:
        copies = {id(one): one.fork() for one in (self._grammar, *(s.grammar for s in self._steps)) if one is not None}
        other = AfterReasoning.__new__(AfterReasoning)
        other._fresh, other._words, other._place = self._fresh, self._words, self._place
        other._grammar = None if self._grammar is None else copies[id(self._grammar)]
        other._steps = [s if s.grammar is None else s._replace(grammar=copies[id(s.grammar)]) for s in self._steps]
        return other

    @property
    def finished(self) -> bool:
        return self._place.part == "inside" and self._grammar is not None and self._grammar.finished
