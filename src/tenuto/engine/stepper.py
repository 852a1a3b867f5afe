"""Requests from the door to their last delta: what a step computes, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tenuto.engine import generation
from tenuto.engine.batch import Batch, BlockCopy, Delta, Output, SequenceSlice, StateSum
from tenuto.engine.config import EngineConfig
from tenuto.engine.counts import Counts
from tenuto.engine.generation import Choice, Emission
from tenuto.engine.kv_cache import KVCache
from tenuto.engine.output_check import mismatch
from tenuto.engine.request import Request
from tenuto.engine.scheduler import Scheduler, Share
from tenuto.engine.session import Session
from tenuto.engine.speculation import NO_DRAFTS, Drafts, Speculator
from tenuto.errors import GrammarError, StepFailed, TenutoError
from tenuto.ids import RequestId
from tenuto.protocol.counters import EngineCounters
from tenuto.protocol.engine import FORCED_LOGPROB, SamplingParams, TokenDelta, TokenLogprob
from tenuto.protocol.grammar import TokenMask

GREEDY = SamplingParams()


class Stepper:
    """Drives the scheduler, turns its plan into a batch, and the batch's output into deltas."""

    def __init__(self, config: EngineConfig, cache: KVCache, scheduler: Scheduler, speculator: Speculator) -> None:
        self.requests: dict[RequestId, Request] = {}
        self._config = config
        self._cache = cache
        self._scheduler = scheduler
        self._speculator = speculator
        self._in_flight: Batch | None = None
        self._outbox: list[Delta] = []
        self._counts = Counts()

    @property
    def is_in_flight(self) -> bool:
        """A step was scheduled and is not committed yet."""
        return self._in_flight is not None

    def begin(self, request: Request, now: float) -> None:
        """A request passed the door: it waits. What needs no step is done at once."""
        session = request.session
        session.request = request
        session.touch(now)
        request.num_held = request.num_reached = session.table.num_computed
        self.requests[request.id] = request
        self._scheduler.add(request, now)
        self._speculator.begin(request)
        if request.params is None and request.num_uncomputed == 0:
            request.started_s = now
            session.total_reused_tokens += request.num_held
            self._done(request, now)
        elif request.grammar is not None:
            try:
                emission = generation.take_forced(request)
            except GrammarError as error:
                self._fail(request, error, now)
                return
            if emission.ids:
                self._emit(request, emission, now)

    def cancel(self, request: Request, now: float) -> None:
        """End without a word. The session keeps its tokens and the KV of the computed ones."""
        self._finish(request, now)

    def abort(self, request: Request, error: TenutoError, now: float) -> None:
        """End with an error that is not the request's fault: the session keeps its KV."""
        self._outbox.append(Delta(request=request.id, error=error, done=True))
        self._finish(request, now)

    def schedule(self, now: float) -> Batch | None:
        """The next step, or None if there is nothing to compute."""
        assert self._in_flight is None, "the step in flight must be committed first"
        while self.requests:
            slices: list[SequenceSlice] = []
            copies: list[BlockCopy] = []
            shares = self._scheduler.plan(now)
            room = self._draft_room(shares)
            for share in shares:
                try:
                    piece = self._slice(share, room)
                except GrammarError as error:
                    self._fail(share.request, error, now)
                    continue
                slices.append(piece)
                room.num_tokens -= piece.num_drafts
                if share.copy is not None:
                    copies.append(share.copy)
            if slices:
                self._in_flight = Batch(self._counts.steps + 1, tuple(slices), tuple(copies))
                self._counts.add_step(len(slices), self._in_flight.num_tokens, len(copies))
                self._cache.begin_step()
                return self._in_flight
            self._cache.drop_copies()  # every request of the plan failed; others may have been waiting
        return None

    def commit(self, batch: Batch, output: Output, now: float) -> None:
        """Take in what a step computed. Raises StepFailed, with nothing committed, if it cannot be used."""
        problem = mismatch(batch, output, self._config.vocab_size)
        if problem is not None:
            raise StepFailed(f"the executor's output of step {batch.step} is unusable: {problem}")
        self._end_step(batch)
        for index, piece in enumerate(batch.slices):
            request = self.requests.get(piece.request)
            if request is None or request.attempt != piece.attempt:
                continue
            if index in output.broken:
                # Its KV may be broken too: it is neither kept nor shared.
                error = StepFailed("the model computed no finite numbers for this request")
                self._fail(request, error, now, withdraw=True)
            else:
                request.state_sum = output.states.get(index, request.state_sum)
                self._advance(request, piece, index, output, now)

    def fail_step(self, batch: Batch, error: TenutoError, sessions: Iterable[Session], now: float) -> None:
        """The step was not computed: its requests end with `error`, and the KV of their sessions is given up."""
        self._end_step(batch)
        self._counts.failed_steps += 1
        for piece in batch.slices:
            request = self.requests.get(piece.request)
            if request is not None and request.attempt == piece.attempt:
                self._fail(request, error, now)
        # A block whose copy was not made may by now belong to a cancelled request's session, or to its fork.
        unmade = {copy.target for copy in batch.copies}
        for session in sessions:
            if unmade and not unmade.isdisjoint(session.table.blocks):
                self._cache.release(session.table)
                if session.request is not None:
                    session.request.num_held = 0

    def take_deltas(self) -> list[Delta]:
        deltas, self._outbox = self._outbox, []
        return deltas

    def counters(self) -> EngineCounters:
        counts = self._counts
        return EngineCounters(
            num_steps=counts.steps,
            num_computed_tokens=counts.computed,
            num_recomputed_tokens=counts.recomputed,
            num_decode_slices=counts.decodes,
            num_sampled_tokens=counts.sampled,
            num_forced_tokens=counts.forced,
            num_drafted_tokens=counts.drafted,
            num_accepted_tokens=counts.accepted,
            num_shared_tokens=counts.shared,
            num_preemptions=self._scheduler.num_preemptions,
            num_preempted_for_others=self._scheduler.num_preempted_for_others,
            num_discards=self._scheduler.num_discards,
            num_discarded_idle=self._scheduler.num_discarded_idle,
            num_evictions=self._cache.num_evictions,
            num_copies=counts.copies,
            num_failed_steps=counts.failed_steps,
            step_requests=counts.step_requests.value(),
            step_tokens=counts.step_tokens.value(),
        )

    def _draft_room(self, shares: Sequence[Share]) -> _DraftRoom:
        """Drafts get what the step's budget has left when everybody has a share."""
        if not self._speculator.is_on:
            return _DraftRoom(1.0, 0)
        num_tokens = sum(share.num_tokens for share in shares)
        num_decodes = sum(_samples(share) for share in shares)
        return _DraftRoom(self._speculator.least_chance(num_decodes), self._config.max_batch_tokens - num_tokens)

    def _slice(self, share: Share, room: _DraftRoom) -> SequenceSlice:
        request = share.request
        session, params = request.session, request.params
        start = session.table.num_computed
        end = start + share.num_tokens
        samples = _samples(share)
        mask: TokenMask | None = None
        counter = request.counter if samples else None
        if samples and request.grammar is not None:
            mask = request.grammar.mask()
            if not mask.any():
                raise GrammarError(f"the grammar allows no token at position {end}, and does not say it is finished")
        drafts = self._drafts(share, end, room) if samples and self._speculator.is_on else NO_DRAFTS
        end += len(drafts.token_ids)
        return SequenceSlice(
            request.id,
            request.attempt,
            (*session.tokens[start:end], *drafts.token_ids),
            start,
            tuple(session.table.blocks[: self._config.blocks_for(end)]),
            samples,
            params.sampling if params is not None else GREEDY,
            mask,
            None if counter is None else counter.seen(session.tokens),
            params.logprobs if params is not None and samples else None,
            _states(request, start, end),
            len(drafts.token_ids),
            drafts.masks,
        )

    def _drafts(self, share: Share, end: int, room: _DraftRoom) -> Drafts:
        """Drafts for a slice that samples after its last token at `end - 1`, with slots to write their KV to."""
        request = share.request
        num_wanted = self._speculator.num_wanted(request, room.least_chance)
        if not num_wanted:
            return NO_DRAFTS
        table = request.session.table
        spare = min(room.num_tokens, self._config.max_chunk_tokens - share.num_tokens)
        drafts = self._speculator.draft(request, num_wanted, min(spare, self._cache.spare_tokens(table, end)))
        if drafts.token_ids:
            copy = self._cache.prepare_write(table, end + len(drafts.token_ids))
            assert copy is None, "the last block of a request with a share must be its own"
        return drafts

    def _end_step(self, batch: Batch) -> None:
        assert batch is self._in_flight, "this is not the step in flight"
        self._in_flight = None
        self._cache.end_step()

    def _advance(self, request: Request, piece: SequenceSlice, index: int, output: Output, now: float) -> None:
        """Args:
        index: of the slice.
        """
        token = output.token_ids[index]
        if token is None:
            self._commit_kv(request, piece, 0, now)
            self._advance_unsampled(request, now)
            return
        drafts = piece.drafts[: output.num_accepted.get(index, 0)]
        choice = generation.take_choice(request, (*drafts, token), self._speculator.learn)
        self._commit_kv(request, piece, choice.num_kept, now)
        self._count_choice(request, piece, choice)
        logprobs = output.logprobs.get(index)
        place = 0
        for number, emission in enumerate(choice.emissions):
            self._emit(request, emission, now, None if logprobs is None else logprobs[place], accepted=number > 0)
            place += len(emission.ids)
        if choice.error is not None:
            self._fail(request, choice.error, now)

    def _advance_unsampled(self, request: Request, now: float) -> None:
        """A slice that samples nothing was computed."""
        if request.num_uncomputed:
            return
        if request.params is None:
            self._done(request, now)
            return
        try:
            emission = generation.take_forced(request)
        except GrammarError as error:
            self._fail(request, error, now)
            return
        self._emit(request, emission, now)

    def _commit_kv(self, request: Request, piece: SequenceSlice, num_drafts: int, now: float) -> None:
        """The KV of a slice's known tokens and first `num_drafts` drafts stands; that of the others is forgotten."""
        session, counts = request.session, self._counts
        num_tokens = piece.num_known + num_drafts
        end = piece.start + num_tokens
        self._cache.commit(session.table, num_tokens, session.tokens)
        again = max(0, min(request.num_reached, end) - piece.start)
        request.num_recomputed += again
        request.num_reached = max(request.num_reached, end)
        request.num_steps += 1
        request.service.tokens += num_tokens
        session.total_computed_tokens += num_tokens
        session.last_used_s = now
        counts.computed += num_tokens
        counts.recomputed += again
        if piece.num_drafts:
            self._cache.trim(session.table, len(session.tokens))

    def _count_choice(self, request: Request, piece: SequenceSlice, choice: Choice) -> None:
        session, counts = request.session, self._counts
        counts.decodes += bool(choice.emissions)
        counts.sampled += len(choice.emissions)
        counts.drafted += piece.num_drafts
        counts.accepted += choice.num_accepted
        request.num_accepted += choice.num_accepted
        session.total_drafted_tokens += piece.num_drafts
        session.total_accepted_tokens += choice.num_accepted

    def _emit(
        self,
        request: Request,
        emission: Emission,
        now: float,
        logprob: TokenLogprob | None = None,
        *,
        accepted: bool = False,
    ) -> None:
        """Args:
        logprob: of the sampled id, if there is one and it was asked for.
        accepted: it was drafted.
        """
        ids, num_forced, finish = emission
        assert request.params is not None
        logprobs: tuple[TokenLogprob, ...] = ()
        if request.params.logprobs is not None:
            logprobs = (*(() if logprob is None else (logprob,)), *(FORCED_LOGPROB for _ in range(num_forced)))
            assert len(logprobs) == len(ids)
        self._counts.forced += num_forced
        if request.first_token_s is None:
            request.first_token_s = now
        usage = None if finish is None else request.usage(now)
        delta = TokenDelta(
            ids=ids, num_forced=num_forced, accepted=accepted, logprobs=logprobs, finish=finish, usage=usage
        )
        self._outbox.append(Delta(request=request.id, tokens=delta, done=finish is not None))
        if finish is not None:
            self._finish(request, now)

    def _done(self, request: Request, now: float) -> None:
        """An append or embed has computed everything."""
        tokens = TokenDelta(usage=request.usage(now))
        self._outbox.append(Delta(request=request.id, tokens=tokens, pooled=_pooled(request), done=True))
        self._finish(request, now)

    def _fail(self, request: Request, error: TenutoError, now: float, *, withdraw: bool = False) -> None:
        """End with an error; the session keeps its tokens, but what its KV holds is no longer trusted.

        `withdraw`: nor are the blocks that it has published.
        """
        self._outbox.append(Delta(request=request.id, error=error, done=True))
        table = request.session.table
        self._finish(request, now)
        if withdraw:
            self._cache.withdraw(table)
        else:
            self._cache.release(table)

    def _finish(self, request: Request, now: float) -> None:
        session = request.session
        if request.started_s is not None:
            self._counts.shared += request.num_shared
        self._scheduler.remove(request)
        del self.requests[request.id]
        session.request = None
        session.enter("idle", now)
        session.touch(now)
        # Blocks that were allocated ahead go back; the computed part stays.
        self._cache.truncate(session.table, session.table.num_computed)


@dataclass(slots=True)
class _DraftRoom:
    """What drafts may take of one step."""

    least_chance: float  # of being right, for a draft to be worth its row
    num_tokens: int  # left of its budget


def _samples(share: Share) -> bool:
    """Whether the token after the share's last one is to be chosen."""
    request = share.request
    reaches_end = share.num_tokens == request.num_uncomputed
    return request.params is not None and reaches_end and not request.forced_ahead


def _states(request: Request, start: int, end: int) -> StateSum | None:
    """Which rows of a slice of tokens `start .. end - 1` are pooled."""
    match request.pooling:
        case "mean":
            return StateSum(0, end - start, request.state_sum)
        case "first" if start == 0:
            return StateSum(0, 1)
        case "last" if end == len(request.session.tokens):
            return StateSum(end - start - 1, end - start)
        case _:
            return None


def _pooled(request: Request) -> NDArray[np.float32] | None:
    if request.pooling is None:
        return None
    assert request.state_sum is not None, "everything is computed, but no state was pooled"
    count = len(request.session.tokens) if request.pooling == "mean" else 1
    return (request.state_sum / count).astype(np.float32)
