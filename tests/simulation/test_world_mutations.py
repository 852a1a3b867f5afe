"""The world can fail: each test breaks one thing on purpose, and the world must notice."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as replace_struct

from tenuto.agents import agent as agent_module
from tenuto.agents import effects
from tenuto.engine import Engine, LocalEngineClient, SequenceSlice, generation
from tenuto.engine.block_pool import BlockPool
from tenuto.engine.kv_cache import KVCache
from tenuto.engine.penalties import TokenCounter
from tenuto.engine.radix_tree import RadixTree
from tenuto.engine.scheduler import Scheduler
from tenuto.engine.speculation import Speculator
from tenuto.engine.stepper import Stepper
from tenuto.testing import Violation, World, WorldConfig, fake_executor, world
from tenuto.testing.fake_executor import FakeExecutor
from tenuto.testing.toy_grammar import ToyGrammar
from tenuto.testing.world_config import draw_config

MAX_SEEDS, MAX_STEPS = 12, 1600


def violation() -> Violation:
    """The first violation within a few seeds."""
    for seed in range(MAX_SEEDS):
        try:
            World(seed).run(MAX_STEPS)
        except Violation as found:
            return found
    pytest.fail(f"the world did not notice within {MAX_SEEDS} x {MAX_STEPS} steps")


WRONG_OUTPUT = "follows from the tokens before it"


@pytest.fixture(params=[True, False], ids=["with invariants", "by output alone"])
def invariants(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Without them, and without a prefix cache whose own assertions are strict, only what comes out can tell."""
    if not request.param:
        monkeypatch.setattr(Engine, "check_invariants", lambda self: None)
    return bool(request.param)


@pytest.fixture
def no_prefix_cache(invariants: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(rng: random.Random) -> WorldConfig:
        config = draw_config(rng)
        return replace(config, engine=replace(config.engine, prefix_cache=invariants))

    monkeypatch.setattr(world, "draw_config", draw)


def test_a_block_freed_in_flight_is_not_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BlockPool, "_put_back", lambda self, block: self._free.give((block,)))
    assert "in flight" in str(violation())


@pytest.mark.usefixtures("no_prefix_cache")
def test_copy_on_write_is_skipped(monkeypatch: pytest.MonkeyPatch, invariants: bool) -> None:
    monkeypatch.setattr(BlockPool, "is_writable", lambda self, block: True)
    found = str(violation())
    # Forks that go on in one step are seen to write one block; later ones read what the other wrote.
    assert invariants or WRONG_OUTPUT in found or "two slices write the same block" in found


def test_a_held_block_is_evicted(monkeypatch: pytest.MonkeyPatch, invariants: bool) -> None:
    def evict_any(self: RadixTree) -> Any:
        leaves = [node for node in self.nodes() if not node.children]
        if not leaves:
            return None
        node = min(leaves, key=lambda n: n.serial)
        self._remove(node)
        return node.block

    def recycle(self: BlockPool, block: Any) -> None:
        self._published[block] = 0
        if self._references[block] == 0:
            self._num_cached -= 1
        self._put_back(block)

    monkeypatch.setattr(RadixTree, "evict", evict_any)
    monkeypatch.setattr(BlockPool, "recycle", recycle)
    violation()


def test_a_partial_block_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = KVCache.commit

    def commit_early(self: KVCache, table: Any, num_tokens: int, tokens: Any) -> None:
        commit(self, table, num_tokens + (table.num_computed + num_tokens) % self.block_size // 2, tokens)

    monkeypatch.setattr(KVCache, "commit", commit_early)
    violation()


def test_a_prefix_is_matched_by_less_than_its_tokens(monkeypatch: pytest.MonkeyPatch, invariants: bool) -> None:
    def match(self: RadixTree, namespace: Any, after: Any, tokens: Any, max_tokens: int) -> list[Any]:
        node = after if after is not None else self._roots.get(namespace)
        found: list[Any] = []
        size = self.block_size
        while node is not None and (node.depth + 1) * size <= max_tokens and node.children:
            first = tokens[node.depth * size]
            node = next((child for key, child in node.children.items() if key[0] == first), None)
            if node is not None:
                found.append(node)
        return found

    monkeypatch.setattr(RadixTree, "match", match)
    violation()


def test_a_sampled_token_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    add = generation._add

    def forgetful_add(request: Any, token: Any) -> Any:
        finish = add(request, token)
        if request.num_generated == 3:
            request.session.tokens.pop()
        return finish

    monkeypatch.setattr(generation, "_add", forgetful_add)
    violation()


def test_penalties_overlook_the_newest_token(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = TokenCounter.seen

    def seen_late(self: TokenCounter, tokens: Any) -> Any:
        return seen(self, tokens[: max(self._num_counted, len(tokens) - 1)])

    monkeypatch.setattr(TokenCounter, "seen", seen_late)
    assert WRONG_OUTPUT in str(violation())


def test_a_log_probability_goes_to_another_token(monkeypatch: pytest.MonkeyPatch) -> None:
    emit = Stepper._emit

    def emit_other(
        self: Stepper, request: Any, emission: Any, now: float, logprob: Any = None, accepted: bool = False
    ) -> None:
        other = None if logprob is None else replace_struct(logprob, logprob=-1.0)
        emit(self, request, emission, now, other, accepted=accepted)

    monkeypatch.setattr(Stepper, "_emit", emit_other)
    assert "log-probability" in str(violation())


@pytest.mark.usefixtures("no_prefix_cache")
def test_truncate_keeps_the_kv_of_forgotten_tokens(monkeypatch: pytest.MonkeyPatch, invariants: bool) -> None:
    truncate = Engine.truncate

    def stale(self: Engine, session: Any, num_tokens: int, now: float) -> None:
        table = self._session(session).table
        num_computed = table.num_computed
        truncate(self, session, num_tokens, now)
        kept = min(num_computed, len(table.blocks) * self.config.block_size)
        if table.num_computed % self.config.block_size:
            table.num_computed = kept

    monkeypatch.setattr(Engine, "truncate", stale)
    found = str(violation())
    assert invariants or WRONG_OUTPUT in found


def test_old_kv_survives_a_reload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "start_epoch", lambda self, now: None)
    assert "never written, or freed" in str(violation())


def test_a_closed_session_keeps_its_blocks(monkeypatch: pytest.MonkeyPatch, invariants: bool) -> None:
    release = KVCache.release
    monkeypatch.setattr(
        KVCache, "release", lambda self, table: release(self, table) if table.num_computed % 5 else None
    )
    violation()


def test_a_cancelled_request_stays_in_the_queue(monkeypatch: pytest.MonkeyPatch, invariants: bool) -> None:
    monkeypatch.setattr(Stepper, "cancel", lambda self, request, now: None)
    violation()


def test_a_preempted_request_forgets_that_its_kv_is_gone(monkeypatch: pytest.MonkeyPatch, invariants: bool) -> None:
    preempt = Scheduler.preempt

    def keep_computed(self: Scheduler, request: Any, now: float) -> None:
        num_computed = request.session.table.num_computed
        preempt(self, request, now)
        request.session.table.num_computed = num_computed

    monkeypatch.setattr(Scheduler, "preempt", keep_computed)
    violation()


# Drafts


def commit_more(monkeypatch: pytest.MonkeyPatch, change: Callable[[Any, Any, int], int]) -> None:
    """`change(request, piece, num_accepted)` says how many drafts are taken for right when KV is committed."""
    commit_kv = Stepper._commit_kv

    def commit(self: Stepper, request: Any, piece: Any, num_accepted: int, now: float) -> None:
        commit_kv(self, request, piece, change(request, piece, num_accepted), now)

    monkeypatch.setattr(Stepper, "_commit_kv", commit)


def test_wrong_drafts_are_published(monkeypatch: pytest.MonkeyPatch) -> None:
    commit_more(monkeypatch, lambda request, piece, num_drafts: piece.num_drafts)
    violation()


def test_a_wrong_draft_stays_in_kv(monkeypatch: pytest.MonkeyPatch, invariants: bool) -> None:
    """In the place of the token that was chosen instead."""
    commit_kv = Stepper._commit_kv

    def commit(self: Stepper, request: Any, piece: Any, num_accepted: int, now: float) -> None:
        commit_kv(self, request, piece, num_accepted, now)
        table = request.session.table
        if num_accepted < piece.num_drafts and table.num_computed % self._config.block_size:
            table.num_computed += 1

    monkeypatch.setattr(Stepper, "_commit_kv", commit)
    violation()


def test_one_draft_too_many_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    execute = FakeExecutor.execute

    def credulous(self: FakeExecutor, batch: Any) -> Any:
        output = execute(self, batch)
        accepted = {
            index: output.num_accepted.get(index, 0) + 1
            for index, piece in enumerate(batch.slices)
            if output.num_accepted.get(index, 0) < piece.num_drafts and piece.logprobs is None
        }
        return replace_struct(output, num_accepted=output.num_accepted | accepted)

    monkeypatch.setattr(FakeExecutor, "execute", credulous)
    found = str(violation())
    assert WRONG_OUTPUT in found or "GrammarError" in found


def test_right_drafts_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    take = generation.take_choice
    monkeypatch.setattr(generation, "take_choice", lambda request, chosen, learn: take(request, chosen[-1:], learn))
    assert WRONG_OUTPUT in str(violation())


def test_blocks_of_wrong_drafts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KVCache, "trim", lambda self, table, num_tokens: None)
    assert "wrong drafts" in str(violation())


def test_drafts_are_over_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    draft = Speculator.draft
    monkeypatch.setattr(Speculator, "draft", lambda self, request, wanted, room: draft(self, request, wanted, 64))
    violation()


def test_drafts_evict_what_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    def spare(self: KVCache, table: Any, num_tokens: int) -> int:
        return (len(table.blocks) + self.num_available + 1) * self.block_size - num_tokens

    monkeypatch.setattr(KVCache, "spare_tokens", spare)
    violation()


def test_a_grammar_is_not_rolled_back_after_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ToyGrammar, "fork", lambda self: self)
    violation()


def test_drafts_have_the_mask_of_the_first_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SequenceSlice, "mask_after", lambda self, num_drafts: self.mask)
    violation()


def test_penalties_overlook_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SequenceSlice, "seen_after", lambda self, num_drafts: self.seen)
    assert WRONG_OUTPUT in str(violation())


def test_drafts_are_drawn_at_the_position_of_the_first_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a random state that is not keyed by position would."""
    choose = fake_executor._choose

    def choose_late(row: Any, vocab_size: int) -> Any:
        late = row.sampling.temperature > 0 and getattr(row, "kv", None) is not None and len(row.kv) % 3 == 0
        sampling = replace_struct(row.sampling, seed=row.sampling.seed + 1) if late else row.sampling
        return choose(row._replace(sampling=sampling), vocab_size)

    monkeypatch.setattr(FakeExecutor, "_verify", _verify_with(choose_late))
    assert WRONG_OUTPUT in str(violation())


def _verify_with(choose: Callable[[Any, int], Any]) -> Callable[[FakeExecutor, Any, Any], Any]:
    verify = FakeExecutor._verify

    def changed(self: FakeExecutor, piece: Any, read: Any) -> Any:
        if not piece.num_drafts:
            return verify(self, piece, read)
        before = fake_executor._choose
        fake_executor._choose = choose
        try:
            return verify(self, piece, read)
        finally:
            fake_executor._choose = before

    return changed


def lose_some(monkeypatch: pytest.MonkeyPatch, is_lost: Callable[[Any], bool]) -> None:
    deliver = LocalEngineClient._deliver
    lost = [0]

    def deliver_most(self: LocalEngineClient, deltas: Any) -> None:
        lost[0] += 1
        deliver(self, [delta for delta in deltas if lost[0] % 9 or not is_lost(delta)])

    monkeypatch.setattr(LocalEngineClient, "_deliver", deliver_most)


def test_a_delta_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    lose_some(monkeypatch, lambda delta: not delta.done)
    violation()


def test_the_last_delta_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    lose_some(monkeypatch, lambda delta: delta.done)
    assert "deadlock" in str(violation())


def test_long_requests_starve(monkeypatch: pytest.MonkeyPatch) -> None:
    admit = Scheduler._admit

    def admit_short(self: Scheduler, walk: Any, request: Any) -> Any:
        return admit(self, walk, request) if len(request.session.tokens) < 30 else None

    monkeypatch.setattr(Scheduler, "_admit", admit_short)
    violation()


def test_an_agent_leaves_its_session_open(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forget(model: Any, session: Any) -> None:
        return None

    monkeypatch.setattr(agent_module, "close_session", forget)
    assert "outlives its run" in str(violation())


def test_an_agent_loses_a_tool_result(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = effects._answered
    monkeypatch.setattr(effects, "_answered", lambda *args: answered(*args)[:1])
    assert "without a result" in str(violation())
