"""The server under test: the whole application over our own chat, sessions and embeddings, over a real engine with a
model that only talks. Virtual time, no threads, every limit small."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from fastapi import FastAPI
from fuzz_model import TalkingExecutor, small_tokenizer

from tenuto.chat import (
    ChatLimits,
    LocalCompletionClient,
    LocalModelClient,
    LocalSessionClient,
    TextTools,
)
from tenuto.clock import VirtualClock
from tenuto.embedding import EnginePooler, LocalEmbedder, SimilarityReranker, TextRules
from tenuto.engine import ClientOptions, EngineConfig, LocalEngineClient
from tenuto.ids import IdSource
from tenuto.offload import Offload
from tenuto.protocol.embedding import EmbedderInfo
from tenuto.protocol.engine import EngineInfo
from tenuto.server import Operations, OtherClients, ServerLimits, create_app
from tenuto.server.access import AccessRules
from tenuto.server.keys import ApiKeys, KeyFile, make_key
from tenuto.server.limits import SessionLimits, StoreLimits
from tenuto.testing.world_history import History
from tenuto.testing.world_watch import WatchedEngine
from tenuto.text.formats.known import FORMATS
from tenuto.text.frame import Frame
from tenuto.text.grammar import LLGuidanceCompiler
from tenuto.text.template import ChatTemplate
from tenuto.text.tool_format import TextFormat

NUM_DIMENSIONS = 4
TENANTS = ("alpha", "beta")
STEP_LOOP, SWEEP = "tenuto-step-loop", "tenuto-idle-sessions"


@dataclass
class Stage:
    app: FastAPI
    engine: WatchedEngine
    history: History
    limits: ServerLimits
    keys: dict[str, str]  # by tenant; the tenant "" has none

    @property
    def tenants(self) -> tuple[str, ...]:
        return tuple(self.keys)

    def others_at_work(self) -> list[str]:
        """Tasks that somebody began and nobody ended."""
        return [
            task.get_name() + " " + str(task.get_coro())
            for task in asyncio.all_tasks()
            if task is not asyncio.current_task() and task.get_name() not in (STEP_LOOP, SWEEP)
        ]


def draw_limits(rng: random.Random) -> ServerLimits:
    max_requests = rng.choice((4, 8, 20))
    return ServerLimits(
        max_body_bytes=12_000,
        max_json_depth=20,
        max_json_values=400,
        max_messages=8,
        max_tools=5,
        max_output_tokens=rng.choice((24, 48)),
        max_requests=max_requests,
        max_tenant_requests=rng.choice((3, max_requests)),
        body_deadline_s=5.0,
        send_deadline_s=5.0,
        cancel_deadline_s=5.0,
        stored_responses=StoreLimits(max_responses=6, max_bytes=40_000, ttl_s=300.0),
        sessions=SessionLimits(
            idle_s=rng.choice((8.0, 200.0)), max_per_tenant=rng.choice((4, 12)), max_import_bytes=60_000,
            import_deadline_s=5.0,
        ),
    )  # fmt: skip


def draw_engine(rng: random.Random) -> EngineConfig:
    block_size = rng.choice((4, 16, 16))
    max_batch_tokens = rng.choice((32, 128, 256))
    return EngineConfig(
        num_blocks=rng.choice((640, 1400, 4000)) // block_size,
        block_size=block_size,
        vocab_size=small_tokenizer().vocab_size,
        max_model_tokens=rng.choice((512, 1200)),
        max_batch_tokens=max_batch_tokens,
        max_chunk_tokens=rng.choice((8, 16, max_batch_tokens)),
        max_running=rng.choice((1, 4, 8)),
        max_waiting=rng.choice((1, 6, 32)),
        policy=rng.choice(("fcfs", "agent")),
        prefix_cache=rng.random() < 0.8,
        kv_bytes_per_token=8,
        speculation=rng.choice(("off", "suffix")),
    )


def _client(engine: WatchedEngine, rng: random.Random, tool_format: TextFormat) -> LocalEngineClient:
    sizes = engine.config
    executor = TalkingExecutor(
        tool_format, num_blocks=sizes.num_blocks, block_size=sizes.block_size, free_blocks=engine.free_blocks
    )
    info = EngineInfo(
        model="talker",
        fingerprint="talker",
        vocab_size=sizes.vocab_size,
        max_model_tokens=sizes.max_model_tokens,
        block_size=sizes.block_size,
        num_blocks=sizes.num_blocks,
        kv_bytes_per_token=sizes.kv_bytes_per_token,
        device="fake",
        precision="exact",
        row_invariant=True,
        hidden_size=NUM_DIMENSIONS,
    )
    step_s = rng.choice((0.001, 0.03, 0.05))
    options = ClientOptions(inline=True, step_cost=lambda batch: step_s + 0.0002 * batch.num_tokens)
    compiler = _compiler()
    return LocalEngineClient(engine, executor, VirtualClock(), info, compiler=compiler, options=options)


_COMPILERS: list[LLGuidanceCompiler] = []


def _compiler() -> LLGuidanceCompiler:
    if not _COMPILERS:
        _COMPILERS.append(LLGuidanceCompiler(small_tokenizer()))
    return _COMPILERS[0]


def _rules(rng: random.Random, folder: Path) -> tuple[AccessRules, dict[str, str]]:
    if rng.random() < 0.25:
        return AccessRules(), {"": ""}
    file, keys = KeyFile(folder / "keys.json"), {}
    for tenant in TENANTS:
        keys[tenant], record = make_key(tenant, "2026-01-05", rng.randbytes)
        file.add(record)
    return AccessRules(keys=ApiKeys(file=file, clock=VirtualClock())), keys


def _without_threads(rng: random.Random) -> Callable[..., Any]:
    """Work beside the event loop as in threads, but in virtual time: others come first, now and then."""

    async def run(self: Offload, function: Callable[[], Any], timeout_s: float) -> Any:
        async with asyncio.timeout(timeout_s), self._places:
            await asyncio.sleep(rng.choice((0.0, 0.001, 0.05)))
            return function()

    return run


@asynccontextmanager
async def staged(rng: random.Random, folder: Path, history: History) -> AsyncIterator[Stage]:
    """A server that runs for the block."""
    tokenizer, clock = small_tokenizer(), VirtualClock()
    tool_format = TextFormat(FORMATS[rng.choice(sorted(FORMATS))], hidden=tokenizer.call_markers)
    engine = WatchedEngine(draw_engine(rng), history)
    limits, (rules, keys) = draw_limits(rng), _rules(rng, folder)
    with patch.object(Offload, "run", _without_threads(random.Random(rng.getrandbits(32)))):
        async with _client(engine, rng, tool_format) as client:
            text = TextTools(tokenizer, ChatTemplate(None, tokenizer, clock, calls=tool_format), tool_format)
            chat_limits = ChatLimits(max_sessions=rng.choice((2, 50)), prepare_threads=rng.choice((0, 1, 4)))
            ids = IdSource(rng.getrandbits(32))
            model = LocalModelClient(client, text, ids=ids, clock=clock, limits=chat_limits)
            most = engine.config.max_model_tokens
            info = EmbedderInfo(
                model="talker", num_dimensions=NUM_DIMENSIONS, max_model_tokens=most, pooling="mean", normalise=True
            )
            text_rules = TextRules(tokenizer, Frame(), most)
            embedder = LocalEmbedder(EnginePooler(client, 4), text_rules, info, clock=clock)
            app = create_app(
                model,
                served_names=("talker",),
                clock=clock,
                ids=ids,
                others=OtherClients(
                    engine=client,
                    completion=LocalCompletionClient(client, tokenizer, ids=ids, clock=clock, limits=chat_limits),
                    embedder=embedder,
                    reranker=SimilarityReranker(embedder, clock=clock),
                    sessions=LocalSessionClient(client, tokenizer, model, limits=chat_limits),
                    releases=model.releases,
                ),
                operations=Operations(limits=limits, rules=rules),
            )
            yield Stage(app, engine, history, limits, keys)
            await model.aclose()
