"""Who computes what in the next step, and who makes room for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tenuto.engine import policy
from tenuto.engine.batch import BlockCopy
from tenuto.engine.config import EngineConfig
from tenuto.engine.kv_cache import KVCache, NextKey
from tenuto.engine.request import Request
from tenuto.engine.session import Session
from tenuto.ids import SessionId

READMIT_SLACK_TOKENS = 64  # growth of each request to make room for before a preempted one comes back
MAX_DOUBLINGS = 4  # of that, one for each further preemption


class Share(NamedTuple):
    """What one request computes in the step."""

    request: Request
    num_tokens: int
    copy: BlockCopy | None


class Scheduler:
    """Walks all requests, best rank first, and gives each its share of one token budget.

    There is no prefill and no decode phase: a running request computes the next of its known tokens, be it one
    or a chunk. Every running request computes at least one token in each step; the rest of the budget goes by rank,
    at most `max_chunk_tokens` to each.

    A waiting request enters when blocks for all of its known tokens, plus slack for the growth of those that run,
    are there; then it allocates them at once. So it is never readmitted for a fraction of a recomputation (B29),
    and one that does not fit does not block others, until `max_bypasses` of them went past it.

    Room is made in this order: cached blocks; the KV of sessions that compute for nobody; the KV of lower-ranked
    requests, lowest rank first, preempting those that run. Their tokens stay and are computed again later. The
    best-ranked request can always take what it needs, and the door let in only what fits an empty pool, so
    somebody always finishes.
    """

    def __init__(self, config: EngineConfig, cache: KVCache, sessions: Mapping[SessionId, Session]) -> None:
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.num_preemptions = 0
        self.num_preempted_for_others = 0
        self.num_discards = 0
        self.num_discarded_idle = 0
        self._config = config
        self._cache = cache
        self._sessions = sessions
        self._rank = policy.agent if config.policy == "agent" else policy.fcfs
        self._select_idle = policy.longest_waiting_session if config.policy == "agent" else policy.oldest_session

    def add(self, request: Request, now: float) -> None:
        request.state = "waiting"
        request.session.enter("waiting", now)
        self.waiting.append(request)

    def remove(self, request: Request) -> None:
        (self.running if request.state == "running" else self.waiting).remove(request)
        request.state = "finished"

    def plan(self, now: float) -> list[Share]:
        """The shares of the next step; empty only if there are no requests."""
        shares = self._walk(now)
        if not shares and self.waiting:
            # Only a last running request that gave way to a better-ranked waiting one leaves the walk empty.
            shares = self._walk(now)
        assert shares or not self.waiting, "requests wait, but none could be scheduled"
        return shares

    def give_up_idle(self, num_blocks: int, now: float, keep: Session | None = None) -> bool:
        """Take KV from sessions that compute for nobody, not from `keep`, until so many blocks are available."""
        cache = self._cache
        if num_blocks <= cache.num_available:
            return True
        idle = [s for s in self._sessions.values() if s.request is None and s.table.blocks and s is not keep]
        while idle and num_blocks > cache.num_available:
            victim = self._select_idle(idle, now)
            idle.remove(victim)
            self._discard(victim)
            self.num_discarded_idle += 1
        return num_blocks <= cache.num_available

    def preempt(self, request: Request, now: float) -> None:
        """Back to waiting, in its old place; its tokens stay, its KV is computed again."""
        assert request.state == "running"
        self.running.remove(request)
        request.attempt += 1
        self._cache.release(request.session.table)
        self.add(request, now)
        self.num_preemptions += 1

    def _walk(self, now: float) -> list[Share]:
        order = policy.rank([*self.running, *self.waiting], self._rank, now, self._config.patience_s)
        walk = _Walk(now, order, self._config.max_batch_tokens, len(self.running))
        for index, request in enumerate(order):
            walk.index = index
            if request.state == "running":
                walk.num_unserved -= 1
                share = self._continue(walk, request)
            elif request.attempt == walk.attempts[index]:
                share = self._admit(walk, request)
            else:
                share = None  # preempted a moment ago, in favour of a better-ranked one
            if share is not None:
                walk.shares.append(share)
                walk.budget -= share.num_tokens
        return walk.shares

    def _continue(self, walk: _Walk, request: Request) -> Share | None:
        table = request.session.table
        num_tokens = min(request.num_uncomputed, walk.room, self._config.max_chunk_tokens)
        assert num_tokens > 0, "a running request has nothing to compute or no budget"
        target = table.num_computed + num_tokens
        if not self._make_room(walk, self._cache.missing_blocks(table, target)):
            self.preempt(request, walk.now)
            return None
        copy = self._cache.prepare_write(table, target)
        assert copy is None, "a running request's last block must be its own"
        return Share(request, num_tokens, None)

    def _admit(self, walk: _Walk, request: Request) -> Share | None:
        if walk.room < 1 or walk.closed or len(self.running) >= self._config.max_running:
            return None
        session, cache = request.session, self._cache
        if request.reads_cache:
            cache.match(session.table, session.tokens)
            if self._is_coming(walk, request):
                return None
        if not self._fits(walk, request):
            # Others may go past it, but not without end.
            walk.blocked.append(request)
            walk.closed = request.num_bypasses >= self._config.max_bypasses
            return None
        copy = cache.prepare_write(session.table, len(session.tokens))
        self.waiting.remove(request)
        self.running.append(request)
        request.start(walk.now)
        for other in walk.blocked:
            other.num_bypasses += 1
            walk.closed = walk.closed or other.num_bypasses >= self._config.max_bypasses
        self._announce(walk, request)
        return Share(request, min(request.num_uncomputed, walk.room, self._config.max_chunk_tokens), copy)

    def _is_coming(self, walk: _Walk, request: Request) -> bool:
        """Is a running request about to publish the very block that this one needs next?

        Then waiting is cheaper than computing it twice. Nobody waits for ever: a running request computes in every
        step and waits for nobody, and when it ends or is preempted, its announcement ends with it.
        """
        if walk.upcoming is None:
            walk.upcoming = set()
            for other in self.running:
                self._announce(walk, other)
        if not walk.upcoming:
            return False
        tokens = request.session.tokens
        return self._cache.next_key(request.session.table, tokens, len(tokens) - 1) in walk.upcoming

    def _announce(self, walk: _Walk, request: Request) -> None:
        tokens = request.session.tokens
        key = self._cache.next_key(request.session.table, tokens, len(tokens))
        if key is not None and walk.upcoming is not None:
            walk.upcoming.add(key)

    def _fits(self, walk: _Walk, request: Request) -> bool:
        """Make room for all known tokens of a waiting request and some slack, if that is possible."""
        session, cache = request.session, self._cache
        missing = cache.missing_blocks(session.table, len(session.tokens))
        if not self.running:
            if self._make_room(walk, missing):
                return True
            if walk.index > 0:
                return False
            # Alone it must fit. A copy on write may need one block too many: compute the partial block again.
            cache.truncate(session.table, session.table.num_computed // cache.block_size * cache.block_size)
            fits = self._make_room(walk, cache.missing_blocks(session.table, len(session.tokens)))
            assert fits, "the best-ranked request does not fit into an empty pool"
            return True
        wanted = missing + self._slack(request)
        if wanted <= cache.num_available:
            return True
        return self._can_make_room(walk, wanted) and self._make_room(walk, wanted, preempt=False)

    def _slack(self, request: Request) -> int:
        """Blocks to leave for the growth of all that run, so that admitting one does not preempt it or another soon.

        More for one that was preempted, and twice as much each further time: requests that do not fit together
        stop displacing each other (B29).
        """
        growth = self._config.block_size
        if request.attempt:
            growth = max(growth, READMIT_SLACK_TOKENS << min(request.attempt - 1, MAX_DOUBLINGS))
        return sum(self._cache.blocks_for(min(growth, r.num_remaining)) for r in [*self.running, request])

    def _can_make_room(self, walk: _Walk, num_blocks: int) -> bool:
        """Would giving up all idle sessions and lower-ranked waiting ones be enough? Else none is given up."""
        kept: set[int] = set()
        for request in self.running:
            kept.update(request.session.table.blocks)
        for request in walk.order[: walk.index + 1]:
            kept.update(request.session.table.blocks)
        return self._cache.num_blocks - len(kept) >= num_blocks

    def _make_room(self, walk: _Walk, num_blocks: int, *, preempt: bool = True) -> bool:
        """Give up KV until so many blocks are available; False if there is no more to give up."""
        cache = self._cache
        if self.give_up_idle(num_blocks, walk.now):
            return True
        for request in reversed(walk.order[walk.index + 1 :]):
            if num_blocks <= cache.num_available:
                return True
            if request.state == "running" and preempt:
                walk.num_unserved -= 1
                self.preempt(request, walk.now)
                self.num_preempted_for_others += 1
            elif request.state == "waiting" and request.session.table.blocks:
                if request.started_s is None:
                    request.num_held = 0
                self._discard(request.session)
        return num_blocks <= cache.num_available

    def _discard(self, session: Session) -> None:
        self._cache.release(session.table)
        self.num_discards += 1


@dataclass(slots=True)
class _Walk:
    """One pass over all requests, best rank first."""

    now: float
    order: list[Request]
    budget: int
    num_unserved: int  # running requests further down: each is sure of one token
    index: int = 0  # where the walk stands
    closed: bool = False  # no more admissions: somebody was passed too often
    upcoming: set[NextKey] | None = None  # blocks that running requests are about to publish
    blocked: list[Request] = field(default_factory=list)  # did not fit
    shares: list[Share] = field(default_factory=list)
    attempts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.attempts = [r.attempt for r in self.order]

    @property
    def room(self) -> int:
        return self.budget - self.num_unserved
