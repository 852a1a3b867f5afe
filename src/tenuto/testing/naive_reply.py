"""What an engine must answer, computed token by token from the token list alone: no blocks, no batches, no cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tenuto.engine.config import EngineConfig
from tenuto.errors import ContextLengthError, GrammarError, InvalidRequest, NeverFits
from tenuto.ids import TokenId
from tenuto.protocol.engine import (
    FORCED_LOGPROB,
    FinishReason,
    GenerateParams,
    GenerateUsage,
    TokenDelta,
    TokenLogprob,
)
from tenuto.protocol.grammar import TokenGrammar
from tenuto.testing.fake_executor import expected_logprob, expected_next
from tenuto.testing.world_history import History


class NaiveToken(NamedTuple):
    id: TokenId
    forced: bool
    finish: FinishReason | None
    logprob: TokenLogprob | None


def naive_reply(
    tokens: Sequence[TokenId], params: GenerateParams, grammar: TokenGrammar | None, config: EngineConfig
) -> Iterator[NaiveToken]:
    """The new ids after `tokens`, the last of them with the reason to stop.

    Raises GrammarError where the grammar contradicts itself.
    """
    known = list(tokens)
    num_prompt = len(known)
    room = min(config.max_model_tokens, config.num_blocks * config.block_size + 1) - len(known)
    left = room if params.max_tokens is None else params.max_tokens
    while True:
        forced = False
        if grammar is None:
            token = expected_next(known, config.vocab_size, params, None, num_prompt)
        elif run := grammar.forced():
            token, forced = run[0], True
        else:
            mask = grammar.mask()
            if not mask.any():
                raise GrammarError("dead end")
            token = expected_next(known, config.vocab_size, params, mask, num_prompt)
        finish: FinishReason | None = "stop" if token in params.stop_ids else None
        if finish is None and grammar is not None:
            if not grammar.accept(token):
                raise GrammarError("refused")
            finish = "grammar" if grammar.finished else None
        left -= 1
        if finish is None and left == 0:
            finish = "length"
        logprob = expected_logprob(known, config.vocab_size, params, token)
        known.append(token)
        yield NaiveToken(token, forced, finish, FORCED_LOGPROB if forced and logprob is not None else logprob)
        if finish is not None:
            return


def naive_refusal(
    num_known: int, ids: Sequence[TokenId], params: GenerateParams | None, config: EngineConfig
) -> type[Exception] | None:
    """The error that an append (no params) or a generate must be refused with, whatever else is going on."""
    if any(not 0 <= i < config.vocab_size for i in ids):
        return InvalidRequest
    wanted = 0
    if params is not None:
        if num_known + len(ids) < 1 or (params.max_tokens is not None and params.max_tokens < 1):
            return InvalidRequest
        wanted = 1 if params.max_tokens is None else params.max_tokens
    total = num_known + len(ids) + wanted
    if total > config.max_model_tokens:
        return ContextLengthError
    # The last new id needs no slot.
    if total - (1 if wanted else 0) > config.num_blocks * config.block_size:
        return NeverFits
    return None


class ReplyCheck:
    """Compares a stream of deltas, and what the session holds at its end, with the naive reply."""

    def __init__(self, tokens: Sequence[TokenId], reply: Iterator[NaiveToken], history: History) -> None:
        self.tokens = list(tokens)  # prompt and what was received
        self.num_received = 0
        self.usage: GenerateUsage | None = None
        self.finish: FinishReason | None = None
        self._reply = reply
        self._history = history

    def take(self, delta: TokenDelta) -> None:
        """Raises Violation if the delta is not the next part of the reply."""
        expect = self._history.expect
        expect(self.finish is None, "a delta follows the last one")
        sampled = len(delta.ids) - delta.num_forced
        expect(sampled in (0, 1), f"{sampled} ids were sampled in one step")
        for place, token in enumerate(delta.ids):
            wanted = self._next()
            expect(
                wanted is not None and token == wanted.id,
                f"token {token} at position {len(self.tokens)}, but {wanted} follows from the tokens before it",
            )
            assert wanted is not None
            expect(wanted.forced == (place >= sampled), "sampled and forced ids are mixed up")
            logprob = delta.logprobs[place] if place < len(delta.logprobs) else None
            expect(logprob == wanted.logprob, f"log-probability {logprob}, not {wanted.logprob}")
            self.tokens.append(token)
            self.num_received += 1
            last = place == len(delta.ids) - 1
            expect(wanted.finish == (delta.finish if last else None), f"finish {delta.finish}, not {wanted.finish}")
        expect(bool(delta.ids), "a delta without ids")
        expect(len(delta.logprobs) in (0, len(delta.ids)), "not as many log-probabilities as ids")
        expect((delta.finish is None) == (delta.usage is None), "usage comes with the finish and only then")
        self.finish, self.usage = delta.finish, delta.usage

    def settle(self, held: Sequence[TokenId]) -> None:
        """The session's tokens after a call that broke off: the naive reply, at least as far as it was received."""
        expect = self._history.expect
        expect(list(held[: len(self.tokens)]) == self.tokens, "ids that were handed out are not in the session")
        for token in held[len(self.tokens) :]:
            wanted = self._next()
            expect(wanted is not None and wanted.id == token, f"the session holds {token}, but {wanted} is right")
            self.tokens.append(token)

    def breaks_off(self) -> bool:
        """The naive reply goes no further: its grammar contradicts itself."""
        try:
            next(self._reply, None)
        except GrammarError:
            return True
        return False

    def _next(self) -> NaiveToken | None:
        try:
            return next(self._reply, None)
        except GrammarError:
            return None
