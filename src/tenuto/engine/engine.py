"""The core: sessions of tokens in, batches out, chosen ids back in. Synchronous, without I/O, clock or threads."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.engine import door
from tenuto.engine.batch import Batch, Delta, Output
from tenuto.engine.config import EngineConfig
from tenuto.engine.counts import levels_of
from tenuto.engine.draft_policy import UNKNOWN
from tenuto.engine.kv_cache import BlockTable, KVCache
from tenuto.engine.penalties import counter_for
from tenuto.engine.radix_tree import Namespace
from tenuto.engine.request import Request
from tenuto.engine.scheduler import Scheduler
from tenuto.engine.session import ServiceLedger, Session
from tenuto.engine.speculation import Speculator
from tenuto.engine.stepper import Stepper
from tenuto.errors import (
    Cancelled,
    InvalidRequest,
    QueueFull,
    SessionBusy,
    SessionExists,
    SessionNotFound,
    StepFailed,
    TenutoError,
)
from tenuto.ids import BlockId, RequestId, SessionId, TokenId
from tenuto.protocol.counters import EngineCounters, EngineLevels
from tenuto.protocol.engine import GenerateParams, Pooling, SessionStats
from tenuto.protocol.grammar import TokenGrammar
from tenuto.protocol.hints import ExpectedWait, RunHints


class Engine:
    """Sessions, and the requests that compute for them.

    One step is `schedule(now) -> Batch`, an executor's `execute(batch) -> Output`, and
    `commit(batch, output, now) -> deltas` (or `fail`). One step is in flight at a time; every other call may come
    meanwhile: what it frees is reused only after the commit, and a slice whose request ended meanwhile is ignored.

    Every call takes the time as an argument. A call that raises has changed nothing.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self._cache = KVCache(config.num_blocks, config.block_size, prefix_cache=config.prefix_cache)
        self._sessions: dict[SessionId, Session] = {}
        self._scheduler = Scheduler(config, self._cache, self._sessions)
        self._speculator = Speculator(config)
        self._stepper = Stepper(config, self._cache, self._scheduler, self._speculator)
        self._ledger = ServiceLedger()
        self._epoch = 0
        self._num_opened = 0
        self._num_imported = 0
        self._num_requests = 0

    # Sessions

    def open(
        self, session: SessionId, now: float, *, parent: SessionId | None = None, hints: RunHints = RunHints()
    ) -> None:
        """New session; with a parent, a copy-on-write fork of its tokens and KV.

        Raises SessionExists, SessionNotFound (parent), and SessionBusy if the parent computes: its tokens would be
        a moving target. The tenant of a fork is its parent's.
        """
        self.check_new(session)
        if parent is None:
            table, tokens, estimates = BlockTable(self._namespace(hints)), [], UNKNOWN
        else:
            source = self._idle_session(parent)
            if hints.tenant and hints.tenant != source.table.namespace.tenant:
                raise InvalidRequest("a fork stays with its parent's tenant", "tenant")
            table, tokens, estimates = self._cache.fork(source.table), list(source.tokens), source.estimates
        self._add(session, hints, table, tokens, now).estimates = estimates

    def append(self, session: SessionId, ids: Sequence[TokenId], now: float, hints: RunHints = RunHints()) -> RequestId:
        """Add ids and compute them. Without uncomputed tokens the request is done at once."""
        target = self._idle_session(session)
        door.check_ids(ids, self.config.vocab_size)
        door.check_append(len(target.tokens), len(ids), self.config)
        self._check_queue()
        target.tokens.extend(ids)
        return self._begin(self._request(target, None, hints, now), now)

    def generate(
        self,
        session: SessionId,
        ids: Sequence[TokenId],
        params: GenerateParams,
        now: float,
        grammar: TokenGrammar | None = None,
    ) -> RequestId:
        """Add ids, then generate until a stop. `grammar` is `params.grammar`, compiled and fresh."""
        target = self._idle_session(session)
        door.check_ids(ids, self.config.vocab_size)
        door.check_params(params, self.config.vocab_size)
        max_tokens = door.resolve_max_tokens(len(target.tokens) + len(ids), params.max_tokens, self.config)
        self._check_queue()
        target.tokens.extend(ids)
        # The last known token is computed again if it has KV already (B21): its logits are wanted.
        self._cache.truncate(target.table, min(target.table.num_computed, len(target.tokens) - 1))
        request = self._request(target, params, params.hints, now)
        request.max_tokens = max_tokens
        request.grammar = grammar
        request.counter = counter_for(params.sampling, target.tokens)
        return self._begin(request, now)

    def embed(
        self, session: SessionId, ids: Sequence[TokenId], pooling: Pooling, now: float, hints: RunHints = RunHints()
    ) -> RequestId:
        """Add ids to an empty session and compute them; the last delta carries their pooled hidden states.

        Raises InvalidRequest if the session holds tokens: the states of those are gone.
        """
        target = self._idle_session(session)
        if target.tokens:
            raise InvalidRequest(f"session {session} holds tokens already; embed takes an empty one", "session")
        if not ids:
            raise InvalidRequest("nothing to embed: no ids were given", "ids")
        door.check_ids(ids, self.config.vocab_size)
        door.check_append(0, len(ids), self.config)
        self._check_queue()
        target.tokens.extend(ids)
        request = self._request(target, None, hints, now)
        request.pooling = pooling
        return self._begin(request, now)

    def cancel(self, request: RequestId, now: float) -> None:
        """End a request at once; its session keeps its tokens and the KV of the computed ones.

        A request that has ended already is no error. No delta follows.
        """
        found = self._stepper.requests.get(request)
        if found is not None:
            self._stepper.cancel(found, now)

    def suspend(self, session: SessionId, wait: ExpectedWait, now: float) -> None:
        """The session will be idle; the next append or generate resumes it."""
        target = self._idle_session(session)
        target.enter("suspended", now)
        target.touch(now)
        target.expected_end_s = None if wait.seconds is None else now + max(0.0, wait.seconds)

    def truncate(self, session: SessionId, num_tokens: int, now: float) -> None:
        """Forget every token after the first `num_tokens`."""
        target = self._idle_session(session)
        if not 0 <= num_tokens <= len(target.tokens):
            known = len(target.tokens)
            raise InvalidRequest(f"cannot keep {num_tokens} tokens: the session has {known}", "num_tokens")
        del target.tokens[num_tokens:]
        self._cache.truncate(target.table, num_tokens)
        if target.index is not None:
            target.index.forget(num_tokens)
        target.last_used_s = now

    def close(self, session: SessionId, now: float) -> None:
        """Free the session; a request still running on it ends with Cancelled."""
        target = self._session(session)
        if target.request is not None:
            self._stepper.abort(target.request, Cancelled(f"session {session} was closed"), now)
        # What was imported, nobody else will ever look for.
        (self._cache.withdraw if target.table.namespace.origin else self._cache.release)(target.table)
        self._speculator.forget(target)
        del self._sessions[session]

    def release(self, ids: Sequence[TokenId], num_kept: int, hints: RunHints = RunHints()) -> int:
        """Take KV that nobody holds out of the prefix cache; see `EngineClient.release`. Returns the blocks freed."""
        door.check_ids(ids, self.config.vocab_size)
        if num_kept < 0:
            raise InvalidRequest(f"cannot keep {num_kept} tokens", "num_kept")
        return self._cache.forget(self._namespace(hints), ids, num_kept)

    def tokens(self, session: SessionId) -> tuple[TokenId, ...]:
        """The ids the session holds."""
        return tuple(self._session(session).tokens)

    # Sessions that move: see SessionTransfer

    def check_new(self, session: SessionId) -> None:
        """Raises SessionExists."""
        if session in self._sessions:
            raise SessionExists(f"session {session} is open already; close it first")

    def open_imported(self, session: SessionId, tokens: Sequence[TokenId], now: float, hints: RunHints) -> None:
        """New session whose KV may be added; it is shared with forks only. Raises what `open` and `append` raise."""
        self.check_new(session)
        door.check_ids(tokens, self.config.vocab_size)
        door.check_append(0, len(tokens), self.config)
        self._num_imported += 1
        origin = f"import {self._num_imported}"
        self._add(session, hints, BlockTable(self._namespace(hints)._replace(origin=origin)), list(tokens), now)

    def add_kv(self, session: SessionId, first: int, end: int, now: float) -> list[int] | None:
        """Slots for the KV of tokens `first .. end - 1`, to be written before the next step: it counts as there.

        None if there is no room, or what was added before is gone. Not while a step is in flight.
        """
        assert not self._stepper.is_in_flight, "blocks are allocated between steps"
        target = self._session(session)
        if target.request is not None or target.table.num_computed != first:
            return None
        if not self._scheduler.give_up_idle(self._cache.missing_blocks(target.table, end), now, keep=target):
            return None
        self._cache.add(target.table, end - first, target.tokens)
        return self._cache.slots(target.table, first, end)

    def kv_slots(self, session: SessionId, first: int, end: int) -> list[int] | None:
        """Where the KV of tokens `first .. end - 1` lies; None if some of them have none."""
        table = self._session(session).table
        return self._cache.slots(table, first, end) if end <= table.num_computed else None

    def rename(self, session: SessionId, name: SessionId, now: float) -> None:
        """Raises SessionExists."""
        renamed = self._session(session)
        self.check_new(name)
        self._sessions[name] = self._sessions.pop(session)
        renamed.id = name
        renamed.touch(now)

    def stats(self, session: SessionId, now: float) -> SessionStats:
        target = self._session(session)
        target.enter(target.phase, now)
        num_blocks = len(target.table.blocks)
        num_shared = self._cache.count_shared(target.table)
        return SessionStats(
            num_tokens=len(target.tokens),
            num_computed=target.table.num_computed,
            num_blocks_owned=num_blocks - num_shared,
            num_blocks_shared=num_shared,
            kv_bytes=num_blocks * self.config.block_size * self.config.kv_bytes_per_token,
            total_computed_tokens=target.total_computed_tokens,
            total_reused_tokens=target.total_reused_tokens,
            total_drafted_tokens=target.total_drafted_tokens,
            total_accepted_tokens=target.total_accepted_tokens,
            waiting_s=target.waiting_s,
            running_s=target.running_s,
            suspended_s=target.suspended_s,
        )

    # Steps

    @property
    def is_in_flight(self) -> bool:
        """A step was scheduled and is not committed yet."""
        return self._stepper.is_in_flight

    @property
    def has_work(self) -> bool:
        return bool(self._stepper.requests)

    def schedule(self, now: float) -> Batch | None:
        """The next step, or None if there is nothing to compute."""
        return self._stepper.schedule(now)

    def commit(self, batch: Batch, output: Output, now: float) -> list[Delta]:
        """Take in what a step computed; the news for the callers."""
        try:
            self._stepper.commit(batch, output, now)
        except StepFailed as error:
            return self.fail(batch, error, now)
        return self.take_deltas()

    def fail(self, batch: Batch, error: TenutoError, now: float) -> list[Delta]:
        """The step was not computed: its requests end with `error`, and the KV of their sessions is given up."""
        self._stepper.fail_step(batch, error, self._sessions.values(), now)
        return self.take_deltas()

    def take_deltas(self) -> list[Delta]:
        """News that came up outside `commit`; each is given out once."""
        return self._stepper.take_deltas()

    def abort_all(self, error: TenutoError, now: float) -> list[Delta]:
        """End every request with `error`, e.g. because the engine stops."""
        for request in list(self._stepper.requests.values()):
            self._stepper.abort(request, error, now)
        return self.take_deltas()

    def start_epoch(self, now: float) -> None:
        """The weights were changed: all KV is void (B20). Tokens stay, and are computed again when next used."""
        self._epoch += 1
        for request in list(self._scheduler.running):
            self._scheduler.preempt(request, now)
        for session in self._sessions.values():
            self._cache.release(session.table)
            session.table.namespace = session.table.namespace._replace(epoch=self._epoch, origin="")
            if session.request is not None and session.request.started_s is None:
                session.request.num_held = 0
        self._cache.clear()

    # Observability

    def counters(self) -> EngineCounters:
        """Counts since the engine began, without `levels`."""
        return self._stepper.counters()

    def levels(self) -> EngineLevels:
        """How things stand now. Walks over all sessions."""
        sessions = self._sessions.values()
        return levels_of(self._cache, sessions, num_waiting=self.num_waiting, num_running=self.num_running)

    @property
    def num_waiting(self) -> int:
        return len(self._scheduler.waiting)

    @property
    def num_running(self) -> int:
        return len(self._scheduler.running)

    @property
    def num_owned_blocks(self) -> int:
        """Blocks held by sessions."""
        return self._cache.num_owned

    @property
    def num_cached_blocks(self) -> int:
        """Blocks nobody holds whose content can still be found."""
        return self._cache.num_cached

    def free_blocks(self) -> tuple[BlockId, ...]:
        """Blocks without content."""
        return self._cache.free_blocks()

    def check_invariants(self) -> None:
        """Fails an assertion if blocks, references, tree, sessions and requests do not agree."""
        self._cache.check_invariants(s.table for s in self._sessions.values())
        requests = set(self._stepper.requests.values())
        queued = [*self._scheduler.waiting, *self._scheduler.running]
        assert len(queued) == len(requests)
        assert set(queued) == requests, "a request is lost"
        assert all(r.state == "waiting" for r in self._scheduler.waiting)
        assert all(r.state == "running" for r in self._scheduler.running)
        for session in self._sessions.values():
            assert session.table.num_computed <= len(session.tokens), "KV of tokens that do not exist"
            if session.request is None:
                assert len(session.table.blocks) == self._cache.blocks_for(session.table.num_computed)
            else:
                assert session.request in requests
                known = self._cache.blocks_for(len(session.tokens))
                drafting = self._stepper.is_in_flight
                assert drafting or len(session.table.blocks) <= known, "blocks of wrong drafts are kept"

    # Inside

    def _add(
        self, session: SessionId, hints: RunHints, table: BlockTable, tokens: list[TokenId], now: float
    ) -> Session:
        self._num_opened += 1
        added = Session(session, self._num_opened, hints, table, self._ledger.of(hints), tokens)
        added.last_used_s = added.phase_since_s = now
        self._sessions[session] = added
        return added

    def _namespace(self, hints: RunHints) -> Namespace:
        return Namespace(epoch=self._epoch, kv_type=self.config.kv_type, tenant=hints.tenant, salt=hints.salt)

    def _session(self, session: SessionId) -> Session:
        found = self._sessions.get(session)
        if found is None:
            raise SessionNotFound(f"session {session} is not open")
        return found

    def _idle_session(self, session: SessionId) -> Session:
        found = self._session(session)
        if found.request is not None:
            raise SessionBusy(f"session {session} is computing for another call; await or cancel that one first")
        return found

    def _check_queue(self) -> None:
        if len(self._scheduler.waiting) >= self.config.max_waiting:
            raise QueueFull(f"{self.config.max_waiting} requests are waiting already; try again later")

    def _request(self, session: Session, params: GenerateParams | None, hints: RunHints, now: float) -> Request:
        """A request on tokens that are in the session already; hints left out are the session's."""
        self._num_requests += 1
        if hints == RunHints():
            hints = session.hints
        return Request(
            id=RequestId(f"req-{self._num_requests}"),
            serial=self._num_requests,
            session=session,
            params=params,
            service=session.service if hints.run in (None, session.hints.run) else self._ledger.of(hints),
            priority=hints.priority,
            arrival_s=now,
            max_tokens=0,
            num_prompt=len(session.tokens),
        )

    def _begin(self, request: Request, now: float) -> RequestId:
        self._stepper.begin(request, now)
        return request.id
