"""The composition root: settings in, a running model out. Only here both sides of the engine are seen.

Embedding and reranking are put together in `wiring_embedding`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio

from tenuto.chat import LocalModelClient, OnBrokenOff, nobody
from tenuto.checkpoint import open_checkpoint
from tenuto.clock import Clock, RealClock
from tenuto.config import Config
from tenuto.device import Device, ReferenceDevice, choose_device
from tenuto.device.protocol import INTEGERS
from tenuto.engine import Engine, EngineConfig, LocalEngineClient
from tenuto.engine.executor import ModelExecutor
from tenuto.errors import ConfigError, GrammarError
from tenuto.field import Room, available_bytes, require_room
from tenuto.ids import IdSource
from tenuto.model import Decoder, load_model
from tenuto.protocol.engine import EngineInfo
from tenuto.protocol.grammar import GrammarCompiler, GrammarSpec, TokenGrammar
from tenuto.text.grammar import LLGuidanceCompiler
from tenuto.wiring_packed import packed_cache
from tenuto.wiring_text import LoadedText, RunningModel, chatting, find_model, text_of


@dataclass(frozen=True)
class LoadedModel(LoadedText):
    """Weights in memory, and what turns messages into their token ids. Any number of engines may run on it."""

    decoder: Decoder


@dataclass(frozen=True)
class NoGrammars:
    """Implements `protocol.GrammarCompiler` for a model none of whose tokens ends a turn: no grammar could end."""

    model: str

    def compile(self, spec: GrammarSpec) -> TokenGrammar:
        raise GrammarError(
            f"{self.model} names no token that ends a turn, as tools and grammars need: add eos_token_id to its files"
        )


def load(config: Config, clock: Clock, device: Device | None = None) -> LoadedModel:
    """Read a model's files, after fetching them if the model is given by an id on a hub.

    Takes seconds, a fetch as long as it must; `locate` beforehand to show its progress.

    Args:
        device: None: the best for the precision on this machine.

    Raises:
        ModelFileError, UnsupportedModel, HubError: see `open_checkpoint` and `ModelStore.fetch`.
        NeverFits: it needs more memory than is free (setting `check_memory`).
    """
    import torch

    if config.num_threads is not None:
        torch.set_num_threads(config.num_threads)
    path = find_model(config)
    checkpoint = open_checkpoint(path)
    text = text_of(checkpoint, path, config, clock)
    # The reference device computes INT8 and INT4 with weights as wide as ever.
    sized_as = "fp32" if isinstance(device, ReferenceDevice) and config.precision in INTEGERS else config.precision
    device = device or choose_device(config.precision, config.num_threads, config.kv_type)
    available = available_bytes() if config.check_memory else None
    require_room(
        checkpoint,
        sized_as,
        Room(kv_tokens=config.kv_tokens, available_bytes=available, kv_type=config.kv_type),
    )
    return LoadedModel(
        name=text.name,
        fingerprint=text.fingerprint,
        text=text.text,
        path=text.path,
        tokenizer_files=text.tokenizer_files,
        decoder=load_model(checkpoint, device, packed_cache(config)),
    )


def engine_config(loaded: LoadedModel, config: Config) -> EngineConfig:
    """The engine's sizes. Raises ConfigError if they contradict each other."""
    decoder = loaded.decoder
    limit = decoder.config.max_model_tokens
    if config.max_model_tokens is not None and config.max_model_tokens > limit:
        raise ConfigError(f"setting max_model_tokens: {config.max_model_tokens} exceeds the model's {limit}")
    return EngineConfig(
        num_blocks=-(-config.kv_tokens // decoder.device.block_size),
        block_size=decoder.device.block_size,
        vocab_size=decoder.config.vocab_size,
        max_model_tokens=config.max_model_tokens or limit,
        max_batch_tokens=config.max_batch_tokens,
        max_chunk_tokens=config.max_chunk_tokens,
        max_running=config.max_running,
        max_waiting=config.max_waiting,
        policy=config.policy,
        prefix_cache=config.prefix_cache,
        # Where logits depend on the number of rows, drafts would change them.
        speculation=config.speculation if decoder.device.row_invariant else "off",
        max_draft_tokens=config.max_draft_tokens,
        kv_type=f"{config.precision}/{config.kv_type}",
        kv_bytes_per_token=decoder.kv_bytes_per_token(),
    )


def _engine_info(loaded: LoadedModel, sizes: EngineConfig) -> EngineInfo:
    device = loaded.decoder.device
    return EngineInfo(
        model=loaded.name,
        fingerprint=loaded.fingerprint,
        vocab_size=sizes.vocab_size,
        max_model_tokens=sizes.max_model_tokens,
        block_size=sizes.block_size,
        num_blocks=sizes.num_blocks,
        kv_bytes_per_token=sizes.kv_bytes_per_token,
        device=device.name,
        precision=device.precision,
        row_invariant=device.row_invariant,
        hidden_size=loaded.decoder.config.hidden_size,
    )


def local_engine(loaded: LoadedModel, config: Config, clock: Clock) -> LocalEngineClient:
    """An engine on a loaded model, in this process; it runs inside an `async with`."""
    sizes = engine_config(loaded, config)
    executor = ModelExecutor(loaded.decoder, sizes.num_blocks)
    tokenizer = loaded.text.tokenizer
    compiler: GrammarCompiler = LLGuidanceCompiler(tokenizer) if tokenizer.eos_ids else NoGrammars(loaded.name)
    return LocalEngineClient(Engine(sizes), executor, clock, _engine_info(loaded, sizes), compiler=compiler)


@asynccontextmanager
async def running(
    loaded: LoadedModel,
    config: Config,
    *,
    clock: Clock | None = None,
    ids: IdSource | None = None,
    on_broken_off: OnBrokenOff = nobody,
) -> AsyncIterator[RunningModel]:
    """Start an engine on a loaded model; it stops, and its KV is freed, at the end of the block."""
    clock, ids = clock or RealClock(), ids or IdSource()
    async with (
        local_engine(loaded, config, clock) as engine,
        chatting(loaded, engine, config, clock=clock, ids=ids, on_broken_off=on_broken_off) as started,
    ):
        yield started


@asynccontextmanager
async def open_model(config: Config | None = None, **settings: object) -> AsyncIterator[LocalModelClient]:
    """Load a model, start an engine on it and yield its client.

    Args:
        config: all settings; or give single ones by name, e.g. `open_model(model="path", precision="bf16")`.
    """
    config = config or Config.load(**settings)
    clock = RealClock()
    if config.engine_process:
        from tenuto.wiring_process import running_apart

        async with running_apart(config, clock=clock) as started:
            yield started.model
        return
    loaded = await anyio.to_thread.run_sync(load, config, clock)
    async with running(loaded, config, clock=clock) as started:
        yield started.model
