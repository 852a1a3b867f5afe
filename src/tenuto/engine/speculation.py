"""Which tokens a request's slice carries as drafts, and what is learned from what was chosen in the end."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Sequence
from typing import NamedTuple

import numpy as np

from tenuto.engine.config import EngineConfig
from tenuto.engine.draft_policy import draft_length, learned, worth
from tenuto.engine.drafts import SuffixIndex
from tenuto.engine.request import Request
from tenuto.engine.session import Session
from tenuto.errors import GrammarError
from tenuto.ids import TokenId
from tenuto.protocol.grammar import TokenGrammar, TokenMask

MAX_INDEXES = 64
"""Sessions whose tokens are indexed at once, the last used: those of others are taken in anew when they return."""


class Drafts(NamedTuple):
    """Guesses at the next tokens of one sequence."""

    token_ids: tuple[TokenId, ...] = ()
    masks: tuple[TokenMask, ...] = ()  # under a grammar: what may follow each of them


NO_DRAFTS = Drafts()


class Speculator:
    """Drafts from each session's own tokens. It decides what is computed along, never what comes out."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._indexed: OrderedDict[Session, None] = OrderedDict()  # least recently used first

    @property
    def is_on(self) -> bool:
        return self._config.speculation != "off"

    def least_chance(self, num_decodes: int) -> float:
        """The chance above which a draft is worth its row in a step where so many sequences sample."""
        return worth(num_decodes, self._config.step_rows)

    def begin(self, request: Request) -> None:
        """A request begins; whose session comes back is indexed last of all to be given up."""
        if self.is_on and request.params is not None and request.session.index is not None:
            self._indexed.move_to_end(request.session)

    def num_wanted(self, request: Request, least_chance: float) -> int:
        """How many drafts are worth computing after the last known token of a request that samples."""
        session = request.session
        index = session.index or self._new_index(session)
        index.follow(session.tokens)
        if not index.place:
            return 0
        # The last id that may be generated needs no KV: it is no draft.
        room = min(self._config.max_draft_tokens, request.num_remaining - 1)
        return draft_length(session.estimates, index.length, least_chance, room)

    def draft(self, request: Request, num_wanted: int, max_drafts: int) -> Drafts:
        """The drafts themselves.

        Args:
            max_drafts: what budget and free blocks allow.
        """
        session, params = request.session, request.params
        room = min(max_drafts, self._config.max_draft_tokens, request.num_remaining - 1)
        if room < 1:
            return NO_DRAFTS
        assert params is not None and session.index is not None
        proposal = session.index.propose(session.tokens, min(num_wanted, room))
        for place, token in enumerate(proposal):
            if token in params.stop_ids:  # nothing follows it
                del proposal[place:]
                break
        if request.grammar is None:
            return Drafts(tuple(proposal))
        return _walk(request.grammar, proposal, room, params.stop_ids)

    def learn(self, request: Request, token: TokenId) -> None:
        """`token` was chosen to follow the known ones: would it have been the first draft?"""
        if not self.is_on:
            return
        session = request.session
        index = session.index or self._new_index(session)
        index.follow(session.tokens)
        if index.place:
            hit = session.tokens[index.place] == token
            session.estimates = learned(session.estimates, index.length, hit)

    def forget(self, session: Session) -> None:
        """The session ends."""
        self._indexed.pop(session, None)
        session.index = None

    def _new_index(self, session: Session) -> SuffixIndex:
        session.index = SuffixIndex()
        self._indexed[session] = None
        self._indexed.move_to_end(session)
        while len(self._indexed) > MAX_INDEXES:
            oldest, _ = self._indexed.popitem(last=False)
            oldest.index = None
        return session.index


def _walk(grammar: TokenGrammar, proposal: Sequence[TokenId], room: int, stop_ids: Container[TokenId]) -> Drafts:
    """The drafts that the grammar allows, up to the first it refuses, and the masks after each.

    What it forces after a draft is certain once the draft is right: it is drafted too, whatever the proposal says.
    A draft after which nothing is to be chosen is left out: the grammar ends there, or forces more than there is room
    for. The walk is on a copy: where it fails, the request's own grammar must not.
    """
    walker = grammar.fork()
    token_ids: list[TokenId] = []
    masks: list[TokenMask] = []
    try:
        while len(token_ids) < len(proposal):
            run = _follow(walker, proposal[len(token_ids)], room - len(token_ids), stop_ids)
            mask = walker.mask() if run else None
            if mask is None or not mask.any():
                break
            masks.extend(_only(token, len(mask)) for token in run[1:])
            masks.append(mask)
            token_ids.extend(run)
            if list(proposal[: len(token_ids)]) != token_ids:
                break
    except GrammarError:
        pass  # no further; if decoding really gets there, the request fails there
    return Drafts(tuple(token_ids), tuple(masks))


def _follow(walker: TokenGrammar, token: TokenId, room: int, stop_ids: Container[TokenId]) -> list[TokenId]:
    """A token and all that is forced after it; empty if that is refused, too long, or the end."""
    run: list[TokenId] = []
    step: tuple[TokenId, ...] = (token,)
    while step:
        if len(run) + len(step) > room:
            return []
        for one in step:
            if one in stop_ids or not walker.accept(one) or walker.finished:
                return []
        run.extend(step)
        step = walker.forced()
    return run


def _only(token: TokenId, num_words: int) -> TokenMask:
    mask = np.zeros(num_words, dtype=np.uint32)
    mask[token // 32] = np.uint32(1) << np.uint32(token % 32)
    return mask
