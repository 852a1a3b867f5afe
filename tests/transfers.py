"""Engines over fake KV that sessions move between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from typing import Any

from tenuto.clock import VirtualClock
from tenuto.engine import ClientOptions, Engine, EngineConfig, LocalEngineClient
from tenuto.ids import SessionId, TokenId
from tenuto.protocol.engine import EngineInfo, GenerateParams
from tenuto.testing.fake_executor import FakeExecutor, expected_next

VOCAB = 50
A, B, C = SessionId("a"), SessionId("b"), SessionId("c")


class Place:
    """One engine: core, fake KV that fails on every wrong read, and its client."""

    def __init__(self, fingerprint: str = "model", **sizes: Any) -> None:
        sizes = {"num_blocks": 64, "block_size": 4, "max_model_tokens": 200, **sizes}
        self.core = Engine(EngineConfig(vocab_size=VOCAB, **sizes))
        free = self.core.free_blocks
        self.executor = FakeExecutor(sizes["num_blocks"], sizes["block_size"], VOCAB, free_blocks=free)
        info = EngineInfo(
            model=f"model of {fingerprint}",
            fingerprint=fingerprint,
            vocab_size=VOCAB,
            max_model_tokens=sizes["max_model_tokens"],
            block_size=sizes["block_size"],
            num_blocks=sizes["num_blocks"],
            kv_bytes_per_token=8,
            device="fake",
            precision="none",
            row_invariant=True,
        )
        options = ClientOptions(inline=True, step_cost=lambda batch: 1.0)
        self.client = LocalEngineClient(self.core, self.executor, VirtualClock(), info, options=options)

    async def say(self, session: SessionId, ids: Sequence[int] = (), max_tokens: int = 6) -> list[int]:
        """Continue a session, and check against what a correct engine must say."""
        before = await self.client.tokens(session)
        known = [*before, *map(TokenId, ids)]
        stream = self.client.generate(session, [TokenId(i) for i in ids], GenerateParams(max_tokens=max_tokens))
        said = [token for delta in [d async for d in stream] for token in delta.ids]
        for token in said:
            assert token == expected_next(known, VOCAB)
            known.append(token)
        self.core.check_invariants()
        return [int(token) for token in said]

    async def export(self, session: SessionId) -> bytes:
        async with aclosing(self.client.export(session)) as pieces:
            return b"".join([piece async for piece in pieces])

    def state(self) -> tuple[object, ...]:
        """What a call that failed must have left as it was."""
        core = self.core
        return core.num_owned_blocks, core.num_cached_blocks, sorted(core.free_blocks()), core.levels().num_sessions


async def cut(data: bytes, size: int = 1000) -> AsyncIterator[bytes]:
    for first in range(0, len(data), size):
        yield data[first : first + size]


async def each(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
