"""Drives an engine step by step against a fake executor, and holds every id against a naive model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tenuto.engine.batch import Batch, Delta
from tenuto.engine.config import EngineConfig
from tenuto.engine.engine import Engine
from tenuto.errors import TenutoError
from tenuto.ids import RequestId, SessionId, TokenId
from tenuto.protocol.engine import FORCED_LOGPROB, FinishReason, GenerateParams, GenerateUsage, Pooling, TokenDelta
from tenuto.protocol.grammar import TokenGrammar
from tenuto.protocol.hints import RunHints
from tenuto.testing.fake_executor import FakeExecutor, expected_logprob, expected_next, expected_pooled


@dataclass(slots=True, eq=False)
class Call:
    """One append, generate or embed, and what came of it so far."""

    id: RequestId
    session: SessionId
    params: GenerateParams | None
    num_prompt: int = 0  # tokens known when it began
    pooling: Pooling | None = None  # of an embed
    pooled: NDArray[np.float32] | None = None
    twin: TokenGrammar | None = None  # a copy of the grammar that only sees what was emitted
    ids: list[TokenId] = field(default_factory=list)
    num_forced: int = 0
    num_accepted: int = 0
    finish: FinishReason | None = None
    usage: GenerateUsage | None = None
    error: TenutoError | None = None
    done: bool = False
    first_step: int | None = None  # engine step of the first new id


class EngineDriver:
    """The naive model is a list of ids per session; the next id is a hash of that list.

    After every call the engine's invariants are checked. `begin` and `end` are the halves of a step, so that calls
    can be made while one is in flight.

    Args:
        step_s: seconds that pass with each step.
    """

    def __init__(self, config: EngineConfig, *, step_s: float = 0.01) -> None:
        self.engine = Engine(config)
        self.executor = FakeExecutor(
            config.num_blocks, config.block_size, config.vocab_size, free_blocks=self.engine.free_blocks
        )
        self.now = 0.0
        self.tokens: dict[SessionId, list[TokenId]] = {}
        self.batch: Batch | None = None  # in flight
        self._config = config
        self._step_s = step_s
        self._calls: dict[RequestId, Call] = {}

    @property
    def live(self) -> list[Call]:
        """Calls that have not ended."""
        return list(self._calls.values())

    def open(self, name: str, *, parent: str | None = None, hints: RunHints = RunHints()) -> SessionId:
        session = SessionId(name)
        source = None if parent is None else SessionId(parent)
        self.engine.open(session, self.now, parent=source, hints=hints)
        self.tokens[session] = [] if source is None else list(self.tokens[source])
        self._settle([])
        return session

    def append(self, name: str, ids: Sequence[int], hints: RunHints = RunHints()) -> Call:
        session = SessionId(name)
        new = [TokenId(i) for i in ids]
        call = Call(self.engine.append(session, new, self.now, hints), session, None)
        return self._accept(call, new)

    def embed(self, name: str, ids: Sequence[int], pooling: Pooling) -> Call:
        """Into a session that holds nothing."""
        session = SessionId(name)
        new = [TokenId(i) for i in ids]
        call = Call(self.engine.embed(session, new, pooling, self.now), session, None, pooling=pooling)
        return self._accept(call, new)

    def generate(
        self, name: str, ids: Sequence[int], params: GenerateParams, grammar: TokenGrammar | None = None
    ) -> Call:
        session = SessionId(name)
        new = [TokenId(i) for i in ids]
        twin = None if grammar is None else grammar.fork()
        call = Call(self.engine.generate(session, new, params, self.now, grammar), session, params, twin=twin)
        return self._accept(call, new)

    def cancel(self, call: Call) -> None:
        self.engine.cancel(call.id, self.now)
        self._calls.pop(call.id, None)
        call.done = True
        self._settle([])

    def truncate(self, name: str, num_tokens: int) -> None:
        session = SessionId(name)
        self.engine.truncate(session, num_tokens, self.now)
        del self.tokens[session][num_tokens:]
        self._settle([])

    def close(self, name: str) -> None:
        session = SessionId(name)
        self.engine.close(session, self.now)
        del self.tokens[session]
        self._settle(self.engine.take_deltas())

    def begin(self) -> Batch | None:
        """Schedule a step; None if there is nothing to compute."""
        assert self.batch is None
        self.batch = self.engine.schedule(self.now)
        self._settle(self.engine.take_deltas())
        return self.batch

    def end(self, error: TenutoError | None = None) -> None:
        """Execute and commit the step in flight, or let it fail with `error`.

        The fake executes here, not in `begin`: writes that come as late as they can show more races.
        """
        batch = self.batch
        assert batch is not None
        self.batch = None
        if error is not None:
            self._settle(self.engine.fail(batch, error, self.now))
            return
        output = self.executor.execute(batch)
        self.now += self._step_s
        self._settle(self.engine.commit(batch, output, self.now))

    def step(self) -> bool:
        """One whole step; False if there was nothing to compute."""
        if self.batch is None and self.begin() is None:
            return False
        self.end()
        return True

    def run(self, max_steps: int = 10_000) -> int:
        """Step until nothing is left to compute; the number of steps."""
        for count in range(max_steps):
            if not self.step():
                assert not self._calls, "a call got no last delta"
                return count
        raise AssertionError(f"still computing after {max_steps} steps")

    def _accept(self, call: Call, new: list[TokenId]) -> Call:
        self.tokens[call.session].extend(new)
        call.num_prompt = len(self.tokens[call.session])
        self._calls[call.id] = call
        self._settle(self.engine.take_deltas())
        return call

    def _settle(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            call = self._calls.get(delta.request)
            if call is not None:
                self._take(call, delta)
        self.engine.check_invariants()
        for session, tokens in self.tokens.items():
            if all(call.session != session for call in self._calls.values()):
                assert list(self.engine.tokens(session)) == tokens, f"{session} lost or gained tokens"

    def _take(self, call: Call, delta: Delta) -> None:
        call.done, call.error, call.pooled = delta.done, delta.error, delta.pooled
        if delta.done and delta.error is None and call.pooling is not None:
            assert call.pooled is not None, f"{call.id} ended without a vector"
            np.testing.assert_array_equal(call.pooled, expected_pooled(self.tokens[call.session], call.pooling))
        if delta.tokens is not None:
            self._check_ids(call, delta.tokens)
            call.finish, call.usage = delta.tokens.finish, delta.tokens.usage
        if delta.done:
            del self._calls[call.id]
        if call.usage is not None:
            self._check_usage(call, call.usage)

    def _check_ids(self, call: Call, delta: TokenDelta) -> None:
        ids, num_forced = delta.ids, delta.num_forced
        tokens, vocab_size = self.tokens[call.session], self._config.vocab_size
        for place, token in enumerate(ids):
            assert call.params is not None and call.finish is None
            if place < len(ids) - num_forced:
                mask = None if call.twin is None else call.twin.mask()
                expected = expected_next(tokens, vocab_size, call.params, mask, call.num_prompt)
                logprob = expected_logprob(tokens, vocab_size, call.params, token)
            else:
                assert call.twin is not None
                expected = call.twin.forced()[0]
                logprob = None if call.params.logprobs is None else FORCED_LOGPROB
            assert token == expected, f"{call.id} on {call.session} at {len(tokens)}: {token} for {expected}"
            assert (delta.logprobs[place] if delta.logprobs else None) == logprob
            if call.twin is not None and token not in call.params.stop_ids:
                assert call.twin.accept(token)
            tokens.append(token)
        call.ids.extend(ids)
        call.num_forced += num_forced
        call.num_accepted += delta.accepted
        if call.ids and call.first_step is None:
            call.first_step = self.executor.num_steps

    def _check_usage(self, call: Call, usage: GenerateUsage) -> None:
        assert usage.num_prompt == len(self.tokens[call.session]) - len(call.ids)
        assert usage.num_prompt == usage.num_held + usage.num_shared + usage.num_computed
        assert min(usage.num_held, usage.num_shared, usage.num_computed, usage.num_recomputed) >= 0
        assert (usage.num_generated, usage.num_forced) == (len(call.ids), call.num_forced)
        assert usage.num_accepted == call.num_accepted
        # Ids that a grammar forces at the very beginning are there before the first step.
        assert min(usage.queued_s, usage.ttft_s) >= 0
        assert max(usage.queued_s, usage.ttft_s) <= usage.total_s
