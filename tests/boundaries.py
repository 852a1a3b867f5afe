"""An engine over fake KV, and a boundary over real sockets to put it behind."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tenuto.clock import RealClock, VirtualClock
from tenuto.engine import ClientOptions, Engine, EngineConfig, LocalEngineClient
from tenuto.engine.boundary import EngineHost, RemoteEngineClient
from tenuto.protocol.engine import EngineClient, EngineInfo
from tenuto.testing.fake_executor import FakeExecutor
from tenuto.testing.fake_grammar import PatternCompiler

VOCAB = 50
CONFIG = EngineConfig(
    num_blocks=40, block_size=4, vocab_size=VOCAB, max_model_tokens=90, max_waiting=3, speculation="suffix"
)
INFO = EngineInfo(
    model="fake",
    fingerprint="0",
    vocab_size=VOCAB,
    max_model_tokens=90,
    block_size=4,
    num_blocks=40,
    kv_bytes_per_token=8,
    device="fake",
    precision="none",
    row_invariant=True,
)


def make_engine(clock: Any = None) -> LocalEngineClient:
    core = Engine(CONFIG)
    executor = FakeExecutor(CONFIG.num_blocks, CONFIG.block_size, VOCAB, free_blocks=core.free_blocks)
    options = ClientOptions(inline=True)
    return LocalEngineClient(
        core, executor, clock or VirtualClock(), INFO, compiler=PatternCompiler(VOCAB), options=options
    )


@asynccontextmanager
async def over_sockets(engine: EngineClient) -> AsyncIterator[tuple[RemoteEngineClient, asyncio.Transport]]:
    """The engine behind a boundary, and the callers' end of the socket."""
    ends = socket.socketpair()
    loop = asyncio.get_running_loop()
    host, client = EngineHost(RealClock()), RemoteEngineClient(RealClock())
    await loop.create_unix_connection(lambda: host.link, sock=ends[0])
    transport, _ = await loop.create_unix_connection(lambda: client.link, sock=ends[1])
    host.begin()
    await host.start(engine)
    await client.ready()
    try:
        yield client, transport
    finally:
        await client.aclose()
        await host.stop()
