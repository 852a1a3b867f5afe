"""Actors that call the engine directly, with random operations, and know from a naive model what must come of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Coroutine
from contextlib import aclosing
from typing import Any, Literal, TypeAlias

from tenuto.errors import (
    Cancelled,
    EngineClosed,
    GrammarError,
    InvalidRequest,
    QueueFull,
    SessionBusy,
    SessionExists,
    SessionNotFound,
    StepFailed,
    TenutoError,
)
from tenuto.ids import RunId, SessionId, TokenId
from tenuto.protocol.engine import GenerateParams, SamplingParams
from tenuto.protocol.grammar import GrammarSpec
from tenuto.protocol.hints import ExpectedWait, RunHints
from tenuto.testing.naive_reply import ReplyCheck, naive_refusal
from tenuto.testing.world_stage import Stage

Ending: TypeAlias = Literal["done", "refused", "broken", "cancelled", "closed"]
SHARED_PROMPTS = 3  # system prompts common to all actors
MAX_TRIES = 1000  # in the calm, with a full queue


def shared_prompt(index: int, num_tokens: int) -> list[TokenId]:
    rng = random.Random(f"shared prompt {index}")
    return [TokenId(rng.randrange(256)) for _ in range(num_tokens)]


class SessionActor:
    """Owns a few sessions and keeps, as its naive model, the list of tokens of each."""

    def __init__(self, name: str, rng: random.Random, stage: Stage) -> None:
        self.name = name
        self._rng = rng
        self._stage = stage
        self._sessions: dict[SessionId, list[TokenId]] = {}
        self._hints: dict[SessionId, RunHints] = {}
        self._num_opened = 0

    async def live(self) -> None:
        """Random calls until the storm is over, or the engine stops."""
        try:
            await self._live()
        except EngineClosed:
            self._stage.history.expect(self._stage.stopped, "the engine stopped by itself")

    async def _live(self) -> None:
        stage, rng = self._stage, self._rng
        while stage.storm:
            if not self._sessions:
                await self._open(None)
            if rng.random() < stage.config.reload:
                stage.reload()
            if rng.random() < stage.config.refused:
                await self._ask_the_impossible()
            if self._sessions:  # the only one may have been closed meanwhile
                await self._random_call()
            await stage.clock.sleep(rng.expovariate(1.0) * stage.config.pause_s)

    async def finish(self) -> None:
        """In the calm: every session still answers, and closes."""
        for session, tokens in list(self._sessions.items()):
            room = self._room(tokens)
            if room < 2:
                await self._stage.client.truncate(session, len(tokens) // 2)
                del tokens[len(tokens) // 2 :]
                room = self._room(tokens)
            params = GenerateParams(max_tokens=max(1, min(6, room - 1)))
            for _ in range(MAX_TRIES):
                ending = await self._generate(session, self._ids(1), params)
                if ending != "refused":  # the queue is full
                    break
                await self._stage.clock.sleep(0.1)
            self._stage.history.expect(ending == "done", f"{session} does not answer in the calm: {ending}")
            await self._close(session)

    # One call after the other

    async def _random_call(self) -> None:
        session = self._rng.choice(list(self._sessions))
        tokens = self._sessions[session]
        match self._rng.choices(
            ("turn", "append", "truncate", "suspend", "fork", "choices", "open", "close"), (50, 12, 10, 8, 8, 8, 6, 6)
        )[0]:
            case "turn":
                await self._generate(session, self._new_ids(tokens), self._draw_params(tokens))
            case "append":
                await self._append(session, self._new_ids(tokens))
            case "truncate":
                await self._truncate(session, self._rng.randint(0, len(tokens)))
            case "suspend":
                await self._suspend(session)
            case "fork":
                await self._open(session)
            case "choices":
                await self._choose(session)
            case "open":
                await self._open(None)
            case _:
                await self._close(session)

    async def _open(self, parent: SessionId | None) -> None:
        if len(self._sessions) >= self._stage.config.max_sessions:
            await self._close(self._rng.choice(list(self._sessions)))
            if parent is not None and parent not in self._sessions:
                return
        self._num_opened += 1
        session = SessionId(f"{self.name}.{self._num_opened}")
        rng = self._rng
        if parent is None:
            hints = RunHints(run=RunId(session), priority=rng.choice((0, 0, 1)), tenant=rng.choice(("", "", "east")))
            await self._stage.client.open(session, hints=hints)
        else:
            hints = self._hints[parent]
            await self._stage.client.open(session, parent=parent, hints=hints)
        self._sessions[session] = list(self._sessions[parent]) if parent is not None else []
        self._hints[session] = hints
        self._check_tokens(session)

    async def _choose(self, session: SessionId) -> None:
        """Go on from one prompt in several ways at once, as chat does for `n` choices; then forget them (B31)."""
        client, tokens = self._stage.client, self._sessions[session]
        if not tokens:
            return
        params, ids = self._draw_params(tokens), self._ids(self._rng.choice((0, 1, 3)))
        forks = [SessionId(f"{session}.choice{index}") for index in range(self._rng.choice((2, 2, 3)))]
        for fork in forks:
            await client.open(fork, parent=session, hints=self._hints[session])
            self._sessions[fork] = list(tokens)
        await asyncio.gather(*(self._generate(fork, ids, params) for fork in forks))
        self._check_tokens(session)
        for fork in forks:
            if fork in self._sessions:  # not closed in the middle
                await self._close(fork)
        self._stage.history.count("choices")

    async def _close(self, session: SessionId) -> None:
        await self._stage.client.close(session)
        del self._sessions[session]

    async def _truncate(self, session: SessionId, num_tokens: int) -> None:
        await self._stage.client.truncate(session, num_tokens)
        del self._sessions[session][num_tokens:]
        self._check_tokens(session)

    async def _suspend(self, session: SessionId) -> None:
        """A tool runs: it is quick, slow, or comes back long after anybody expected it."""
        expected = self._rng.choice((None, 0.0, 0.5, 5.0))
        await self._stage.client.suspend(session, ExpectedWait(seconds=expected))
        await self._stage.clock.sleep(self._rng.choice((0.01, 0.1, 1.0, 60.0)))
        self._check_tokens(session)

    async def _append(self, session: SessionId, ids: list[TokenId]) -> Ending:
        check = ReplyCheck([*self._sessions[session], *ids], iter(()), self._stage.history)
        refusal = naive_refusal(len(self._sessions[session]), ids, None, self._stage.config.engine)
        ending = await self._interruptible(session, self._follow_append(session, ids, refusal))
        await self._stage.arrived()
        self._settle(session, check, ending)
        return ending

    async def _generate(self, session: SessionId, ids: list[TokenId], params: GenerateParams) -> Ending:
        tokens = self._sessions[session]
        check = self._stage.naive([*tokens, *ids], params)
        expected_held, num_losses = self._stage.expected_held(session, len(ids))
        ending = await self._interruptible(session, self._follow_generate(session, ids, params, check))
        await self._stage.arrived()
        self._settle(session, check, ending)
        if check.usage is not None and check.usage.num_steps and num_losses == self._stage.engine.num_losses:
            # In a full pool, a partial block that would have to be copied is computed again instead.
            held, size = check.usage.num_held, self._stage.config.engine.block_size
            right = held in (expected_held, expected_held // size * size)
            self._stage.history.expect(right, f"{session}: {held} tokens held, not {expected_held}")
        return ending

    # How a call goes and ends

    async def _follow_append(self, session: SessionId, ids: list[TokenId], refusal: type[Exception] | None) -> Ending:
        try:
            await self._stage.client.append(session, ids)
        except TenutoError as error:
            return self._explain(error, refusal)
        self._stage.history.expect(refusal is None, f"an append was accepted that {refusal} refuses")
        return "done"

    async def _follow_generate(
        self, session: SessionId, ids: list[TokenId], params: GenerateParams, check: ReplyCheck
    ) -> Ending:
        stage, rng = self._stage, self._rng
        refusal = naive_refusal(len(self._sessions[session]), ids, params, stage.config.engine)
        if params.grammar is not None and params.grammar.source.endswith("bad"):
            refusal = GrammarError
        leave_at = rng.randint(1, 6) if rng.random() < stage.config.interrupt and stage.storm else 0
        num_deltas = 0
        try:
            async with aclosing(stage.client.generate(session, ids, params)) as stream:  # type: ignore[type-var]
                async for delta in stream:
                    stage.history.expect(refusal is None, f"a request was accepted that {refusal} refuses")
                    check.take(delta)
                    num_deltas += 1
                    if delta.finish is None and num_deltas == leave_at:
                        stage.history.count("left")
                        return "cancelled"
                    if delta.finish is None and rng.random() < stage.config.probe and stage.storm:
                        await self._probe_busy(session)
        except TenutoError as error:
            if isinstance(error, GrammarError) and check.breaks_off() and refusal is None:
                return "broken"
            return self._explain(error, refusal)
        stage.history.expect(check.finish is not None, "the stream ended without a finish")
        return "done"

    def _explain(self, error: TenutoError, refusal: type[Exception] | None) -> Ending:
        """What an error means for the session; Violation for one that nobody caused."""
        stage = self._stage
        match error:
            case QueueFull():
                # By the time the answer is here, those in the queue may have gone.
                full = stage.config.apart or stage.engine.num_waiting >= stage.config.engine.max_waiting
                stage.history.expect(full, "QueueFull, but the queue is not full")
                return "refused"
            case StepFailed():
                stage.history.expect(not stage.calm, "a step failed in the calm")
                return "broken"
            case Cancelled():
                return "closed"
            case EngineClosed():
                stage.history.expect(stage.stopped, "the engine stopped by itself")
                return "broken"
            case _:
                stage.history.expect(refusal is type(error), f"{error.code} ({error}), but {refusal} was expected")
                return "refused"

    async def _interruptible(self, session: SessionId, call: Coroutine[Any, Any, Ending]) -> Ending:
        """Await a call; perhaps cancel it, or close its session, after a random while."""
        stage, rng = self._stage, self._rng
        task = asyncio.create_task(call)
        cancelled = False
        if rng.random() < stage.config.interrupt and stage.storm:
            await stage.clock.sleep(rng.choice((0.0, 0.001, 0.01, 0.03, 0.1)) * rng.random())
            if not task.done() and rng.random() < 0.25:
                await stage.client.close(session)
                del self._sessions[session]
            else:
                cancelled = task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            if cancelled and task.cancelled():
                return "cancelled"
            raise

    def _settle(self, session: SessionId, check: ReplyCheck, ending: Ending) -> None:
        """Bring the naive model up to date, and compare it with the session."""
        stage, expect = self._stage, self._stage.history.expect
        stage.history.add(stage.clock.now(), self.name, session, ending)
        if session not in self._sessions:
            expect(not stage.engine.is_open(session), f"{session} was closed, but is open")
            return
        expect(ending != "closed", f"{session} was cancelled by nobody")
        expect(not stage.engine.is_busy(session), f"{session} is busy after its call {ending}")
        held = list(stage.engine.tokens(session))
        unchanged = held == self._sessions[session]
        if ending == "refused" or (ending != "done" and unchanged and not check.num_received):
            expect(unchanged, f"{session} changed although the call was refused")
            return
        if ending == "done":
            expect(held == check.tokens, f"{session} holds other tokens than it was sent")
        check.settle(held)
        self._sessions[session] = held

    async def _probe_busy(self, session: SessionId) -> None:
        """A second call on a session that computes is refused, and disturbs nothing."""
        client = self._stage.client
        if self._stage.config.apart or not self._stage.engine.is_busy(session):
            return  # it has finished, or may have when the call arrives; the last delta is on its way
        match self._rng.randrange(4):
            case 0:
                await self._refused(SessionBusy, client.append(session, self._ids(2)))
            case 1:
                await self._refused(SessionBusy, client.truncate(session, 0))
            case 2:
                await self._refused(SessionBusy, client.suspend(session, ExpectedWait()))
            case _:
                await self._refused(SessionBusy, client.open(SessionId(f"{session}.fork"), parent=session))

    async def _ask_the_impossible(self) -> None:
        client, rng, config = self._stage.client, self._rng, self._stage.config.engine
        session = rng.choice(list(self._sessions))
        tokens = self._sessions[session]
        match rng.randrange(7):
            case 0:
                await self._refused(SessionExists, client.open(session))
            case 1:
                await self._refused(SessionNotFound, client.append(SessionId("nobody"), self._ids(1)))
            case 2:
                await self._refused(SessionNotFound, client.close(SessionId("nobody")))
            case 3:
                await self._refused(InvalidRequest, client.truncate(session, len(tokens) + 1))
            case 4:
                await self._append(session, [TokenId(config.vocab_size)])
            case 5:
                await self._generate(session, self._ids(config.max_model_tokens), GenerateParams(max_tokens=3))
            case _:
                await self._generate(session, self._ids(2), GenerateParams(max_tokens=config.max_model_tokens))
        if session in self._sessions:
            self._check_tokens(session)

    async def _refused(self, kind: type[TenutoError], call: Awaitable[object]) -> None:
        try:
            await call
        except kind:
            return
        self._stage.history.expect(False, f"a call was accepted that must raise {kind.__name__}")

    def _check_tokens(self, session: SessionId) -> None:
        stage, expect = self._stage, self._stage.history.expect
        held = list(stage.engine.tokens(session))
        expect(held == self._sessions[session], f"{session} holds other tokens than it should")
        stats = stage.engine.stats(session, stage.clock.now())
        expect(stats.num_tokens == len(held), f"{session}: {stats} for {len(held)} tokens")
        num_blocks = stage.config.engine.blocks_for(stats.num_computed)
        expect(stats.num_blocks_owned + stats.num_blocks_shared == num_blocks, f"{session}: wrong blocks, {stats}")
        expect(min(stats.waiting_s, stats.running_s, stats.suspended_s) >= 0, f"{session}: negative time, {stats}")

    # What is asked for

    def _room(self, tokens: list[TokenId]) -> int:
        config = self._stage.config.engine
        return min(config.max_model_tokens, config.num_blocks * config.block_size) - len(tokens)

    def _ids(self, count: int) -> list[TokenId]:
        return [TokenId(self._rng.randrange(256)) for _ in range(count)]

    def _new_ids(self, tokens: list[TokenId]) -> list[TokenId]:
        """Mostly a short turn, sometimes a huge one, sometimes nothing; a new session starts with a shared prompt."""
        rng, room = self._rng, self._room(tokens)
        if not tokens and rng.random() < 0.7:
            return shared_prompt(rng.randrange(SHARED_PROMPTS), rng.choice((5, 16, 24, 32, 33))) + self._ids(3)
        size = rng.choice((0, 1, 2, 4, 8, 12, 16, 40, max(1, room // 2), max(1, room - 4)))
        return self._ids(size)

    def _draw_params(self, tokens: list[TokenId]) -> GenerateParams:
        rng = self._rng
        sampling = SamplingParams(
            temperature=rng.choice((0.0, 0.0, 0.7)),
            repetition_penalty=rng.choice((1.0, 1.0, 1.2)),
            frequency_penalty=rng.choice((0.0, 0.0, 0.0, 0.5)),
            logit_bias=rng.choice(((), (), ((TokenId(3), -1.5),))),
            seed=rng.randrange(3),
        )
        return GenerateParams(
            max_tokens=rng.choice((1, 2, 4, 8, 16, 30, None if rng.random() < 0.1 else 5)),
            sampling=sampling,
            logprobs=rng.choice((None, None, 0, 2)),
            stop_ids=frozenset(TokenId(rng.randrange(260)) for _ in range(rng.choice((0, 1, 8)))),
            grammar=self._draw_grammar(),
        )

    def _draw_grammar(self) -> GrammarSpec | None:
        rng = self._rng
        if rng.random() < 0.7:
            return None
        kind = rng.choices(("", "dead ", "refuse "), (8, 1, 1))[0]
        source = "bad" if rng.random() < 0.05 else f"{kind}{rng.randrange(50)}"
        return GrammarSpec(kind="lark", source=source)
