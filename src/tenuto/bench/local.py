"""Runs workloads on our own engine: each run on a fresh one, over weights that are loaded once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from tenuto.bench.driver import Progress, RunClock, drive
from tenuto.bench.model_agents import ModelAgents
from tenuto.bench.records import KVHeld, RunRecord, Speculation, TurnRecord
from tenuto.bench.shape import Shape
from tenuto.bench.token_agents import Mode, Sampled, TokenAgents
from tenuto.bench.tool_agents import ToolAgents
from tenuto.bench.tool_workload import ToolWorkload
from tenuto.bench.workload import TextWorkload, TokenWorkload, encode_texts, make_texts
from tenuto.chat import ChatLimits, LocalModelClient
from tenuto.clock import Clock
from tenuto.config import Config
from tenuto.ids import IdSource, SessionId, TokenId
from tenuto.protocol.chat import ModelClient
from tenuto.protocol.engine import EngineClient, GenerateParams
from tenuto.protocol.hints import RunHints
from tenuto.wiring import LoadedModel, running
from tenuto.wiring_text import RunningModel

_BLOCK_SLACK = 64  # tokens a session may take beyond its length: the rest of its last block, and of a copied one
_WARM_TOKENS = 64
_TOKENS_A_WORD = 3  # more than any vocabulary needs for what the workloads say, frames of messages included
_WARM_IDS = tuple(TokenId(i % 100 + 5) for i in range(_WARM_TOKENS))

_Run = Callable[[RunningModel, RunClock], Awaitable[tuple[tuple[TurnRecord, ...], Sequence[SessionId]]]]


@dataclass(frozen=True)
class _Needs:
    """What a workload asks of the engine."""

    agents: int
    kv_tokens: int
    prefix_cache: bool = True


class LocalBench:
    """Our engine as a system to be measured.

    Args:
        config: precision, threads and everything else that is not the workload's; the KV pool is made as large as the
            workload needs, or as the configuration says if that is more.
    """

    def __init__(self, loaded: LoadedModel, config: Config, clock: Clock, progress: Progress | None = None) -> None:
        self._loaded = loaded
        self._config = config
        self._clock = clock
        self._progress = progress

    async def run(
        self, workload: TokenWorkload, mode: Mode, *, speculation: bool | None = None, sampled: Sampled | None = None
    ) -> RunRecord:
        """Agents as tokens.

        Args:
            speculation: on or off; None: as configured.

        Raises what the engine does, e.g. ContextLengthError where a session outgrows the model.
        """
        shape = workload.shape
        tokens = sum(workload.num_tokens(agent) + _BLOCK_SLACK for agent in range(shape.agents))

        async def run(started: RunningModel, clock: RunClock) -> tuple[tuple[TurnRecord, ...], Sequence[SessionId]]:
            agents = TokenAgents(started.engine, workload, clock, hold=mode != "reprefill", sampled=sampled)
            turns = await drive(agents, shape, at_once=mode == "held", progress=self._progress)
            return turns, agents.sessions

        return await self._on_engine(mode, _Needs(shape.agents, tokens, mode != "reprefill"), speculation, run)

    async def run_tools(self, workload: ToolWorkload, *, speculation: bool | None = None) -> RunRecord:
        """Agents as conversations that call tools, all at once, their KV held.

        Raises what the chat client does, and TenutoError where a turn does not end as a tool call.
        """
        shape = workload.shape

        async def run(started: RunningModel, clock: RunClock) -> tuple[tuple[TurnRecord, ...], Sequence[SessionId]]:
            agents = ToolAgents(started.engine, self._chat_client, workload, clock)
            turns = await drive(agents, shape, at_once=True, progress=self._progress)
            return turns, agents.sessions

        return await self._on_engine("tools", _Needs(shape.agents, chat_tokens(shape)), speculation, run)

    async def run_chat(self, texts: TextWorkload) -> RunRecord:
        """Agents as conversations without a session, all at once: every turn gives the whole history."""
        shape = texts.shape

        async def run(started: RunningModel, clock: RunClock) -> tuple[tuple[TurnRecord, ...], Sequence[SessionId]]:
            agents = ModelAgents(self._chat_client(started.engine), texts, clock)
            return await drive(agents, shape, at_once=True, progress=self._progress), ()

        return await self._on_engine("chat", _Needs(shape.agents, chat_tokens(shape)), None, run)

    def _chat_client(self, engine: EngineClient) -> ModelClient:
        limits = ChatLimits(max_sessions=self._config.max_sessions, prepare_threads=4)
        return LocalModelClient(engine, self._loaded.text, ids=IdSource(1), clock=self._clock, limits=limits)

    async def _on_engine(self, mode: str, needs: _Needs, speculation: bool | None, run: _Run) -> RunRecord:
        config = self._config.model_copy(update=self._changes(needs, speculation))
        async with running(self._loaded, config, clock=self._clock) as started:
            await _warm_up(started.engine)
            before = await started.engine.counters()
            turns, sessions = await run(started, RunClock(self._clock))
            after = await started.engine.counters()
            return RunRecord(
                system="tenuto",
                mode=mode,
                settings=await _settings(started, config),
                agents=needs.agents,
                turns=turns,
                wall_s=max(turn.end_s for turn in turns),
                speculation=Speculation(
                    num_drafted=after.num_drafted_tokens - before.num_drafted_tokens,
                    num_accepted=after.num_accepted_tokens - before.num_accepted_tokens,
                ),
                kv=await self._kv_held(started.engine, sessions),
                num_steps=after.num_steps - before.num_steps,
            )

    def _changes(self, needs: _Needs, speculation: bool | None) -> dict[str, object]:
        config = self._config
        changes: dict[str, object] = {
            "kv_tokens": max(config.kv_tokens, needs.kv_tokens + _WARM_TOKENS + _BLOCK_SLACK),
            "max_running": max(config.max_running, needs.agents),
            "max_waiting": max(config.max_waiting, needs.agents),
            "prefix_cache": needs.prefix_cache and config.prefix_cache,
        }
        if speculation is not None:
            changes["speculation"] = "suffix" if speculation else "off"
        return changes

    async def _kv_held(self, engine: EngineClient, sessions: Sequence[SessionId]) -> KVHeld | None:
        """What the open sessions hold; closes them.

        A block counts when the last session that holds it is closed, so each counts once.
        """
        if not sessions:
            return None
        info = await engine.info()
        num_blocks = num_tokens = 0
        for session in sessions:
            stats = await engine.stats(session)
            num_blocks += stats.num_blocks_owned
            num_tokens += stats.num_computed
            await engine.close(session)
        specs = self._loaded.decoder.attention_specs
        bf16_bytes = sum(2 * 2 * spec.num_kv_heads * spec.head_dim for spec in specs)  # of K and V of one token
        return KVHeld(
            kv_bytes=num_blocks * info.block_size * info.kv_bytes_per_token,
            num_tokens=num_tokens,
            bytes_per_token=info.kv_bytes_per_token,
            separate_bf16_bytes=num_tokens * bf16_bytes,
        )


def chat_tokens(shape: Shape) -> int:
    """KV that all agents need at most as conversations: what is said, its frames, tools and replies."""
    words = shape.prompt_words + shape.turns * shape.result_words
    return shape.agents * (_TOKENS_A_WORD * words + 64 * shape.turns + 1024 + shape.turns * shape.output_tokens)


def token_workload(loaded: LoadedModel, shape: Shape) -> TokenWorkload:
    """The workload in the ids of a model."""
    return encode_texts(make_texts(shape), lambda text: loaded.text.tokenizer.encode(text, "inside"))


async def _settings(started: RunningModel, config: Config) -> dict[str, str]:
    info = await started.engine.info()
    return {
        "model": info.model,
        "device": info.device,
        "precision": config.precision,
        "kv_type": config.kv_type,
        "threads": "one a core" if config.num_threads is None else str(config.num_threads),
        "prefix_cache": "on" if config.prefix_cache else "off",
        "speculation": config.speculation,
        "max_batch_tokens": str(config.max_batch_tokens),
        "max_chunk_tokens": str(config.max_chunk_tokens),
    }


async def _warm_up(engine: EngineClient) -> None:
    """Touches memory and starts threads before the clock runs. Another tenant shares no KV with the workload."""
    info = await engine.info()
    session = SessionId("warm-up")
    hints = RunHints(tenant="warm-up")
    await engine.open(session, hints=hints)
    ids = [TokenId(token % info.vocab_size) for token in _WARM_IDS]
    async for _ in engine.generate(session, ids, GenerateParams(max_tokens=2, hints=hints)):
        pass
    await engine.close(session)
