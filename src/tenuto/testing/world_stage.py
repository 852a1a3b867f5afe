"""What all actors of a world share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from tenuto.clock import Clock
from tenuto.engine import LocalEngineClient
from tenuto.engine.boundary import RemoteEngineClient
from tenuto.errors import EngineClosed
from tenuto.ids import BlockId, SessionId, TokenId
from tenuto.protocol.engine import EngineClient, GenerateParams
from tenuto.protocol.grammar import TokenGrammar
from tenuto.testing.boundary import across
from tenuto.testing.fake_executor import FakeExecutor
from tenuto.testing.naive_reply import ReplyCheck, naive_reply
from tenuto.testing.toy_grammar import ToyGrammarCompiler
from tenuto.testing.world_config import WorldConfig
from tenuto.testing.world_history import History
from tenuto.testing.world_watch import WatchedEngine


@dataclass
class Stage:
    """The engine under test, and what the era is at: first a storm of faults; when everybody has come to rest after
    it, the calm, in which everything must work."""

    config: WorldConfig
    clock: Clock
    engine: WatchedEngine
    local: LocalEngineClient
    executor: FakeExecutor
    compiler: ToyGrammarCompiler
    history: History
    storm: bool = True
    calm: bool = False
    stopped: bool = False  # the engine was stopped on purpose
    remote: RemoteEngineClient | None = None  # where the engine is behind a boundary

    @property
    def client(self) -> EngineClient:
        """What everybody calls."""
        return self.local if self.remote is None else self.remote

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self.local:
            if not self.config.apart:
                yield
                return
            async with across(self.local, self.clock) as self.remote:
                yield

    async def arrived(self) -> None:
        """All that was asked so far has reached the engine, so that one can look at it."""
        if self.remote is not None:
            with suppress(EngineClosed):
                await self.remote.counters()

    async def stop(self) -> None:
        """The engine stops while everybody is at work: each request ends with EngineClosed."""
        self.stopped = True
        await self.local.stop()
        self.history.expect(not self.engine.entries and not self.engine.has_work, "requests outlive the engine")
        self.history.count("shutdown")

    def naive(self, tokens: list[TokenId], params: GenerateParams) -> ReplyCheck:
        """Knows the right reply to `tokens`."""
        grammar: TokenGrammar | None = None
        if params.grammar is not None and not params.grammar.source.endswith("bad"):
            grammar = self.compiler.compile(params.grammar)
        return ReplyCheck(tokens, naive_reply(tokens, params, grammar, self.config.engine), self.history)

    def expected_held(self, session: SessionId, num_new: int) -> tuple[int, int]:
        """How many tokens the session's next call must find held, unless somebody's KV is given up meanwhile; and
        how often that happened so far."""
        stats = self.engine.stats(session, self.clock.now())
        return min(stats.num_computed, stats.num_tokens + num_new - 1), self.engine.num_losses

    def reload(self) -> None:
        """New weights: whatever was computed with the old ones must not be read again (B20)."""
        self.engine.start_epoch(self.clock.now())
        self.executor.poison(BlockId(block) for block in range(self.config.engine.num_blocks))
        self.history.count("reload")
