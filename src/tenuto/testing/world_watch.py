"""The production engine under observation: invariants after every call, and a ledger of every request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tenuto.engine import Batch, Delta, Engine, EngineConfig, Output
from tenuto.errors import TenutoError
from tenuto.ids import RequestId, SessionId, TokenId
from tenuto.protocol.engine import GenerateParams, GenerateUsage, Pooling, TokenDelta
from tenuto.protocol.grammar import TokenGrammar
from tenuto.protocol.hints import ExpectedWait, RunHints
from tenuto.testing.world_history import History, Violation

MAX_ATTEMPTS = 64
"""A request that was preempted more often than this makes no progress (B29)."""


@dataclass
class Entry:
    """One accepted request that has not ended."""

    session: SessionId
    params: GenerateParams | None
    num_known: int  # tokens when it was accepted
    num_computed: int = 0  # tokens computed for it and committed
    num_steps: int = 0
    num_new: int = 0
    num_forced: int = 0
    num_accepted: int = 0
    end: int = 0  # tokens in KV after its last step
    attempt: int = 0


class WatchedEngine(Engine):
    """Records every call, and raises Violation when one breaks an invariant or loses a request.

    An accepted request ends exactly once: with its last delta, or by `cancel`.
    """

    def __init__(self, config: EngineConfig, history: History) -> None:
        super().__init__(config)
        self.entries: dict[RequestId, Entry] = {}
        self.num_steps = 0
        self._history = history
        self._num_computed = 0  # tokens of all committed slices
        self._written: set[int] = set()  # blocks the step in flight may write
        self._committing = False
        self._num_accepted: dict[int, int] = {}  # of the step that is committed

    def is_busy(self, session: SessionId) -> bool:
        return any(entry.session == session for entry in self.entries.values())

    @property
    def open_sessions(self) -> frozenset[SessionId]:
        return frozenset(self._sessions)

    def is_open(self, session: SessionId) -> bool:
        return session in self._sessions

    @property
    def num_losses(self) -> int:
        """How often KV was given up that somebody still held."""
        counters = self.counters()
        return counters.num_discards + counters.num_preemptions + counters.num_failed_steps + self._epoch

    # Calls

    def open(
        self, session: SessionId, now: float, *, parent: SessionId | None = None, hints: RunHints = RunHints()
    ) -> None:
        with self._observed(now, "open", session, parent):
            super().open(session, now, parent=parent, hints=hints)

    def append(self, session: SessionId, ids: Sequence[TokenId], now: float, hints: RunHints = RunHints()) -> RequestId:
        with self._observed(now, "append", session, list(ids)):
            num_known = self._num_known(session) + len(ids)
            request = super().append(session, ids, now, hints)
            self._accept(request, Entry(session, None, num_known))
        return request

    def generate(
        self,
        session: SessionId,
        ids: Sequence[TokenId],
        params: GenerateParams,
        now: float,
        grammar: TokenGrammar | None = None,
    ) -> RequestId:
        with self._observed(now, "generate", session, list(ids), params.max_tokens, params.sampling):
            num_known = self._num_known(session) + len(ids)
            request = super().generate(session, ids, params, now, grammar)
            self._accept(request, Entry(session, params, num_known))
        return request

    def embed(
        self, session: SessionId, ids: Sequence[TokenId], pooling: Pooling, now: float, hints: RunHints = RunHints()
    ) -> RequestId:
        with self._observed(now, "embed", session, list(ids), pooling):
            request = super().embed(session, ids, pooling, now, hints)
            self._accept(request, Entry(session, None, len(ids)))
        return request

    def cancel(self, request: RequestId, now: float) -> None:
        if request not in self.entries:
            super().cancel(request, now)
            return
        self._count_cancel(request)
        with self._observed(now, "cancel", request):
            super().cancel(request, now)
            del self.entries[request]

    def suspend(self, session: SessionId, wait: ExpectedWait, now: float) -> None:
        with self._observed(now, "suspend", session, wait.seconds):
            super().suspend(session, wait, now)

    def truncate(self, session: SessionId, num_tokens: int, now: float) -> None:
        with self._observed(now, "truncate", session, num_tokens):
            super().truncate(session, num_tokens, now)

    def close(self, session: SessionId, now: float) -> None:
        with self._observed(now, "close", session):
            super().close(session, now)

    def start_epoch(self, now: float) -> None:
        with self._observed(now, "start_epoch"):
            super().start_epoch(now)

    # Steps

    def schedule(self, now: float) -> Batch | None:
        with self._guarded():
            batch = super().schedule(now)
            if batch is not None:
                self._record_batch(batch, now)
        return batch

    def commit(self, batch: Batch, output: Output, now: float) -> list[Delta]:
        with self._observed(now, "commit", batch.step, output.token_ids, sorted(output.num_accepted.items())):
            self._written.clear()
            self.num_steps += 1
            self._note(batch, output.num_accepted, 1)
            self._committing, self._num_accepted = True, output.num_accepted
            deltas = super().commit(batch, output, now)
            self._committing = False
        return deltas

    def fail(self, batch: Batch, error: TenutoError, now: float) -> list[Delta]:
        with self._observed(now, "fail", batch.step):
            self._written.clear()
            if self._committing:
                self._note(batch, self._num_accepted, -1)
            else:
                self.num_steps += 1
            return super().fail(batch, error, now)

    def take_deltas(self) -> list[Delta]:
        with self._guarded():
            deltas = super().take_deltas()
            for delta in deltas:
                self._follow(delta)
        return deltas

    # What must hold

    def check_idle(self) -> None:
        """Nobody computes."""
        expect = self._history.expect
        self.check_invariants()
        expect(not self.entries, f"{len(self.entries)} requests have no outcome: {list(self.entries)}")
        expect(not self.has_work and not self.num_waiting and not self.num_running, "the idle engine has work")

    def check_quiet(self) -> None:
        """Nobody computes, and no session is open: every block is free or cached, every count agrees."""
        expect = self._history.expect
        self.check_idle()
        expect(not self._sessions, f"sessions are still open: {list(self._sessions)}")
        expect(self.num_owned_blocks == 0, f"{self.num_owned_blocks} blocks belong to nobody")
        num_free = len(self.free_blocks())
        expect(num_free + self.num_cached_blocks == self.config.num_blocks, "free and cached blocks are not all")
        counted = self.counters().num_computed_tokens
        expect(counted == self._num_computed, f"{counted} computed tokens counted, {self._num_computed} committed")

    @contextmanager
    def _observed(self, now: float, *event: object) -> Iterator[None]:
        """Record the call and its outcome; a refusal changes nothing; the invariants hold afterwards."""
        with self._guarded():
            before = self._outline()
            try:
                yield
            except TenutoError as error:
                self._history.add(now, *event, error.code)
                self._history.count(f"refused: {error.code}")
                self._history.expect(
                    self._outline() == before, f"{event[0]} raised {error.code}, but changed something"
                )
                raise
            self._history.add(now, *event)
            self.check_invariants()
            if self._written and not self._written.isdisjoint(self.free_blocks()):
                raise Violation("a block that the step in flight writes is free")

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except (AssertionError, LookupError, TypeError, ValueError) as error:
            self._history.violate(error)
            raise

    def _outline(self) -> tuple[object, ...]:
        tokens = sum(len(s.tokens) + s.table.num_computed for s in self._sessions.values())
        queued = (self.num_waiting, self.num_running, len(self._sessions))
        return tokens, queued, self.num_owned_blocks, self.num_cached_blocks, len(self.entries)

    def _num_known(self, session: SessionId) -> int:
        return len(self._sessions[session].tokens) if session in self._sessions else 0

    def _accept(self, request: RequestId, entry: Entry) -> None:
        self._history.expect(request not in self.entries, f"{request} is given out twice")
        self.entries[request] = entry
        self._history.count("append" if entry.params is None else "generate")

    def _count_cancel(self, request: RequestId) -> None:
        found = self._stepper.requests[request]
        place = "decode" if found.num_generated else "prefill" if found.num_steps else "before the first step"
        self._history.count("cancel: queued" if found.state == "waiting" else f"cancel: {place}")
        if self._stepper._in_flight is not None and found.state == "running":
            self._history.count("cancel: step in flight")

    def _record_batch(self, batch: Batch, now: float) -> None:
        size = self.config.block_size
        self._written.update(copy.target for copy in batch.copies)
        parts = []
        num_tokens = 0
        for piece in batch.slices:
            self._written.update(piece.block_table[piece.start // size :])
            num_tokens += len(piece.token_ids)
            sizes = (piece.start, piece.num_known, piece.num_drafts)
            parts.append((piece.request, piece.attempt, *sizes, piece.block_table))
        self._history.add(now, "batch", batch.step, parts, [(c.source, c.target) for c in batch.copies])
        expect = self._history.expect
        expect(num_tokens <= self.config.max_batch_tokens, "the batch is over the token budget")
        expect(len(batch.slices) <= self.config.max_running, "too many requests in the batch")
        longest = max(len(piece.token_ids) for piece in batch.slices)
        expect(longest <= self.config.max_chunk_tokens, "a chunk is too long")
        expect(self._written.isdisjoint(self.free_blocks()), "the batch writes a free block")

    def _note(self, batch: Batch, num_accepted: dict[int, int], sign: int) -> None:
        """Credit the slices of requests that still run; `sign` -1 takes it back."""
        for index, piece in enumerate(batch.slices):
            entry, request = self.entries.get(piece.request), self._stepper.requests.get(piece.request)
            if entry is None or request is None or request.attempt != piece.attempt:
                continue
            entry.attempt = piece.attempt
            self._history.expect(piece.attempt <= MAX_ATTEMPTS, f"{piece.request} was preempted {piece.attempt} times")
            num_tokens = piece.num_known + num_accepted.get(index, 0)
            entry.num_computed += sign * num_tokens
            entry.num_steps += sign
            entry.end = piece.start + num_tokens
            self._num_computed += sign * num_tokens

    def _follow(self, delta: Delta) -> None:
        entry = self.entries.get(delta.request)
        self._history.expect(entry is not None, f"{delta.request} gets a delta after its end")
        assert entry is not None
        if delta.tokens is not None:
            entry.num_new += len(delta.tokens.ids)
            entry.num_forced += delta.tokens.num_forced
            entry.num_accepted += delta.tokens.accepted
        if delta.done:
            del self.entries[delta.request]
            if delta.error is not None:
                self._history.count(f"ended: {delta.error.code}")
            else:
                assert delta.tokens is not None
                self._history.count(f"ended: {delta.tokens.finish or 'appended'}")
                self._check_usage(delta.request, entry, delta.tokens)

    def _check_usage(self, request: RequestId, entry: Entry, last: TokenDelta) -> None:
        usage, expect = last.usage, self._history.expect
        expect(usage is not None, f"{request} ended without usage")
        assert isinstance(usage, GenerateUsage)
        where = f"{request}: {usage} for {entry}"
        reused = usage.num_held + usage.num_shared
        expect(usage.num_prompt == reused + usage.num_computed, f"the prompt does not add up; {where}")
        expect(min(usage.num_held, usage.num_shared, usage.num_computed) >= 0, f"a negative count; {where}")
        expect(usage.num_prompt == entry.num_known, f"num_prompt; {where}")
        sampled_first = entry.params is not None and entry.params.grammar is None
        expect(not sampled_first or reused < usage.num_prompt, f"no token left to compute (B21); {where}")
        expect(usage.num_generated == entry.num_new, f"num_generated; {where}")
        expect(usage.num_forced == entry.num_forced, f"num_forced; {where}")
        expect(usage.num_accepted == entry.num_accepted, f"num_accepted; {where}")
        expect(usage.num_steps == entry.num_steps, f"num_steps; {where}")
        expect(0 <= max(usage.queued_s, usage.ttft_s) <= usage.total_s, f"times; {where}")
        if entry.num_steps:
            spent = entry.end - reused + usage.num_recomputed
            # When it returns, more may be found in the cache than it had lost. And where the whole prompt is reused,
            # ids that were forced after it may be found there too.
            exact = entry.attempt == 0 and reused < usage.num_prompt
            right = entry.num_computed == spent if exact else entry.num_computed <= spent
            expect(right, f"computed {entry.num_computed}, usage says {spent}; {where}")
