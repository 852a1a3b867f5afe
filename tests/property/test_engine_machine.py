"""The whole core under random calls, faults and pressure; every id is held against the naive model."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tenuto.engine import EngineConfig
from tenuto.errors import CapacityError, RequestError, StepFailed
from tenuto.ids import RunId, SessionId, TokenId
from tenuto.protocol.engine import GenerateParams, SamplingParams
from tenuto.protocol.hints import ExpectedWait, RunHints
from tenuto.testing.engine_driver import EngineDriver
from tenuto.testing.fake_grammar import PatternGrammar

VOCAB = 50
PREFIXES = [[(i * k) % VOCAB for i in range(20)] for k in (1, 3)]


class EngineMachine(RuleBasedStateMachine):
    @initialize(
        num_blocks=st.sampled_from([6, 10, 24, 80]),
        max_batch_tokens=st.sampled_from([4, 16]),
        max_chunk_tokens=st.sampled_from([3, 16]),
        policy=st.sampled_from(["fcfs", "agent"]),
        prefix_cache=st.booleans(),
        speculation=st.sampled_from(["off", "suffix"]),
        max_draft_tokens=st.sampled_from([1, 8]),
        step_rows=st.sampled_from([3.0, 100.0]),
    )
    def build(self, **sizes: object) -> None:
        limits = {"vocab_size": VOCAB, "max_model_tokens": 120, "max_running": 4, "max_waiting": 5, "block_size": 4}
        self.driver = EngineDriver(EngineConfig(**limits, **sizes), step_s=0.5)  # type: ignore[arg-type]
        self.num_opened = 0

    def sessions(self) -> list[SessionId]:
        return sorted(self.driver.tokens)

    @precondition(lambda self: len(self.driver.tokens) < 6)
    @rule(data=st.data(), fork=st.booleans(), run=st.sampled_from([None, RunId("x"), RunId("y")]))
    def open(self, data: st.DataObject, fork: bool, run: RunId | None) -> None:
        parent = data.draw(st.sampled_from(self.sessions())) if fork and self.driver.tokens else None
        self.num_opened += 1
        try:
            self.driver.open(
                f"s{self.num_opened}", parent=parent, hints=RunHints(run=run, priority=self.num_opened % 2)
            )
        except RequestError:
            assert parent is not None

    @precondition(lambda self: self.driver.tokens)
    @rule(
        data=st.data(),
        prefix=st.sampled_from([[], *PREFIXES]),
        ids=st.lists(st.integers(0, 2), max_size=5),
        max_tokens=st.sampled_from([1, 4, 12, None]),
        kind=st.sampled_from(["append", "greedy", "random", "penalised", "grammar", "mean", "last", "first"]),
    )
    def compute(
        self, data: st.DataObject, prefix: list[int], ids: list[int], max_tokens: int | None, kind: str
    ) -> None:
        session = data.draw(st.sampled_from(self.sessions()))
        new = ([] if self.driver.tokens[session] else prefix) + ids
        sampling = SamplingParams(
            temperature=1.0 if kind == "random" else 0.0,
            seed=len(ids),
            repetition_penalty=1.2 if kind == "penalised" and len(ids) % 2 else 1.0,
            presence_penalty=0.5 if kind in ("penalised", "grammar") else 0.0,
        )
        logprobs = len(ids) if kind in ("penalised", "grammar") else None
        stop_ids = frozenset({TokenId(7)})
        params = GenerateParams(max_tokens=max_tokens, sampling=sampling, stop_ids=stop_ids, logprobs=logprobs)
        try:
            if kind == "append":
                self.driver.append(session, new)
            elif kind in ("mean", "last", "first"):
                self.driver.embed(session, new, kind)
            else:
                places = [frozenset({5}), frozenset(range(9, 30)), frozenset({6}), frozenset({8, 7}), frozenset({1})]
                grammar = PatternGrammar(places, VOCAB) if kind == "grammar" else None
                self.driver.generate(session, new, params, grammar)
        except (RequestError, CapacityError):
            assert list(self.driver.engine.tokens(session)) == self.driver.tokens[session], "a refused call changed it"

    @precondition(lambda self: self.driver.live)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.driver.cancel(self.driver.live[data.draw(st.integers(0, len(self.driver.live) - 1))])

    @precondition(lambda self: self.driver.tokens)
    @rule(data=st.data(), part=st.floats(0, 1))
    def truncate(self, data: st.DataObject, part: float) -> None:
        session = data.draw(st.sampled_from(self.sessions()))
        if all(call.session != session for call in self.driver.live):
            self.driver.truncate(session, int(part * len(self.driver.tokens[session])))

    @precondition(lambda self: self.driver.tokens)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        self.driver.close(data.draw(st.sampled_from(self.sessions())))

    @precondition(lambda self: self.driver.tokens)
    @rule(data=st.data(), seconds=st.sampled_from([None, 0.0, 9.0]))
    def suspend(self, data: st.DataObject, seconds: float | None) -> None:
        session = data.draw(st.sampled_from(self.sessions()))
        if all(call.session != session for call in self.driver.live):
            self.driver.engine.suspend(session, ExpectedWait(seconds=seconds), self.driver.now)

    @rule(data=st.data(), part=st.floats(0, 1), more=st.booleans())
    def release(self, data: st.DataObject, part: float, more: bool) -> None:
        """Whatever is taken out of the cache, held KV stays right; the count is that of the blocks that are free."""
        known = [list(ids) for ids in self.driver.tokens.values()] + PREFIXES
        ids = data.draw(st.sampled_from(known)) + [TokenId(1)] * more
        before = self.driver.engine.levels()
        gone = self.driver.engine.release([TokenId(i) for i in ids], int(part * len(ids)))
        after = self.driver.engine.levels()
        self.driver.engine.check_invariants()
        assert after.num_blocks_cached == before.num_blocks_cached - gone
        assert after.num_blocks_free == before.num_blocks_free + gone

    @rule()
    def reload(self) -> None:
        self.driver.engine.start_epoch(self.driver.now)
        self.driver.engine.check_invariants()

    @rule()
    def half_step(self) -> None:
        if self.driver.batch is None:
            self.driver.begin()
        else:
            self.driver.end()

    @rule(count=st.integers(1, 6))
    def steps(self, count: int) -> None:
        for _ in range(count):
            self.driver.step()

    @precondition(lambda self: self.driver.batch is not None)
    @rule()
    def fail(self) -> None:
        self.driver.end(StepFailed("injected"))

    def teardown(self) -> None:
        if not hasattr(self, "driver"):
            return
        if self.driver.batch is not None:
            self.driver.end()
        self.driver.run()
        for session in self.sessions():
            self.driver.close(session)
        engine = self.driver.engine
        assert engine.num_owned_blocks == 0
        assert len(engine.free_blocks()) + engine.num_cached_blocks == engine.config.num_blocks


TestEngine = EngineMachine.TestCase
TestEngine.settings = settings(max_examples=40, stateful_step_count=60, deadline=None)


@pytest.mark.parametrize("seed", range(12))
def test_seeded_runs_lose_nothing(seed: int) -> None:
    """Longer than a state machine goes: sessions live for hundreds of steps, half of them with steps in flight."""
    rng = random.Random(seed)
    machine = EngineMachine()
    machine.build(
        num_blocks=rng.choice([8, 14, 40]),
        max_batch_tokens=rng.choice([4, 16]),
        max_chunk_tokens=rng.choice([3, 16]),
        policy=rng.choice(["fcfs", "agent"]),
        prefix_cache=rng.random() < 0.7,
        speculation=rng.choice(["off", "suffix", "suffix"]),
        step_rows=rng.choice([3.0, 100.0]),
    )
    driver = machine.driver
    for count in range(250):
        if len(driver.tokens) < 6:
            parents = [s for s in driver.tokens if all(c.session != s for c in driver.live)]
            driver.open(f"s{count}", parent=rng.choice(parents) if parents and rng.random() < 0.5 else None)
        idle = [s for s in driver.tokens if all(c.session != s for c in driver.live)]
        if idle:
            session = rng.choice(idle)
            new = [*rng.choice(PREFIXES)[: rng.randrange(21)], *rng.choices(range(3), k=rng.randrange(1, 5))]
            try:
                sampling = SamplingParams(repetition_penalty=rng.choice([1.0, 1.3]))
                driver.generate(session, new, GenerateParams(max_tokens=rng.choice([1, 5, 20]), sampling=sampling))
            except (RequestError, CapacityError):
                driver.truncate(session, rng.randrange(len(driver.tokens[session]) + 1))
        if driver.live and rng.random() < 0.1:
            driver.cancel(rng.choice(driver.live))
        if rng.random() < 0.05:
            driver.close(rng.choice(sorted(driver.tokens)))
        for _ in range(rng.randrange(4)):
            machine.half_step()
    machine.teardown()
