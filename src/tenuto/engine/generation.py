"""What follows from one chosen token: grammar, forced ids, and whether the request ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tenuto.engine.request import Request
from tenuto.errors import GrammarError
from tenuto.ids import TokenId
from tenuto.protocol.engine import FinishReason

MAX_FORCED = 256  # ids added at once: following a grammar takes up to 0.1 ms for each, in which nobody else is served


class Emission(NamedTuple):
    """New ids of one request, already part of its session."""

    ids: tuple[TokenId, ...]
    num_forced: int
    finish: FinishReason | None


class Choice(NamedTuple):
    """What a step chose for one request: ids of drafts that are right, then one more."""

    emissions: tuple[Emission, ...]
    num_kept: int  # drafts that are now part of the session, forced ones among them: their KV stands
    error: GrammarError | None = None  # after these, the grammar refused one

    @property
    def num_accepted(self) -> int:
        """Sampled ids that needed no step of their own."""
        return max(0, len(self.emissions) - 1)


def take_choice(request: Request, chosen: Sequence[TokenId], learn: Callable[[Request, TokenId], None]) -> Choice:
    """Add ids one after the other, each as if it had been chosen alone, up to the one that ends the request.

    Args:
        chosen: accepted drafts, then the id that follows them.
        learn: told of each sampled id before it is added.
    """
    tokens = request.session.tokens
    start = len(tokens)
    emissions: list[Emission] = []
    num_kept = 0
    for num_kept, token in enumerate(chosen):
        place = start + num_kept
        if place < len(tokens):  # the grammar has forced one here
            if tokens[place] != token:
                break
            continue
        learn(request, token)
        try:
            emission = take_sampled(request, token)
        except GrammarError as error:
            return Choice(tuple(emissions), num_kept, error)
        emissions.append(emission)
        if emission.finish is not None:
            break
    return Choice(tuple(emissions), num_kept)


def take_sampled(request: Request, token: TokenId) -> Emission:
    """Add a sampled id to the session, then the ids its grammar forces.

    Raises GrammarError, with the session unchanged, if the grammar refuses the id.
    """
    _check(request, token)
    finish = _add(request, token)
    forced, finish = _jump_forward(request, finish)
    return Emission((token, *forced), len(forced), finish)


def take_forced(request: Request) -> Emission:
    """Add the ids that the grammar forces before anything is sampled, or before anything is sampled again."""
    forced, finish = _jump_forward(request, None)
    return Emission(tuple(forced), len(forced), finish)


def _jump_forward(request: Request, finish: FinishReason | None) -> tuple[list[TokenId], FinishReason | None]:
    # Forced ids are appended, never decoded one by one: they become known tokens that the next step computes.
    added: list[TokenId] = []
    grammar = request.grammar
    while grammar is not None and finish is None and len(added) < MAX_FORCED:
        forced = request.forced_ahead or grammar.forced()
        if not forced:
            break
        now = forced[: MAX_FORCED - len(added)]
        request.forced_ahead = forced[len(now) :]
        for token in now:
            _check(request, token)
            finish = _add(request, token)
            added.append(token)
            if finish is not None:
                break
    request.num_forced += len(added)
    return added, finish


def _check(request: Request, token: TokenId) -> None:
    grammar, params = request.grammar, request.params
    assert params is not None
    if grammar is None or token in params.stop_ids:
        return  # a stop id ends the request whatever the grammar's state is; the mask allowed it
    if not grammar.accept(token):
        raise GrammarError(f"the grammar refused token {token} at position {len(request.session.tokens)}")


def _add(request: Request, token: TokenId) -> FinishReason | None:
    params = request.params
    assert params is not None
    request.session.tokens.append(token)
    request.num_generated += 1
    if token in params.stop_ids:
        return "stop"
    if request.grammar is not None and request.grammar.finished:
        return "grammar"
    if request.num_generated >= request.max_tokens:
        return "length"
    return None
