"""The part of the composition root that reads text and talks to an engine, wherever that runs: it needs no torch."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tenuto.chat import (
    ChatLimits,
    LocalCompletionClient,
    LocalModelClient,
    LocalSessionClient,
    OnBrokenOff,
    TextTools,
    nobody,
)
from tenuto.checkpoint import Checkpoint, TokenizerFiles, open_checkpoint
from tenuto.clock import Clock
from tenuto.config import Config
from tenuto.errors import EngineClosed
from tenuto.hub import locate
from tenuto.ids import IdSource
from tenuto.protocol.engine import EngineClient
from tenuto.text.formats.known import FORMATS
from tenuto.text.formats.recognise import recognise
from tenuto.text.template import ChatTemplate
from tenuto.text.tokenizer import Tokenizer
from tenuto.text.tool_format import TextFormat
from tenuto.wiring_hub import model_store

_PREPARE_THREADS = 4  # a heavy request leaves room for the others


@dataclass(frozen=True)
class LoadedText:
    """What turns a model's messages into token ids and back."""

    name: str
    fingerprint: str
    text: TextTools
    path: Path
    tokenizer_files: TokenizerFiles


@dataclass(frozen=True)
class RunningModel:
    """A running engine, and the clients that agents and the server speak to."""

    model: LocalModelClient
    completion: LocalCompletionClient
    sessions: LocalSessionClient
    engine: EngineClient
    loaded: LoadedText
    ended: Callable[[], Awaitable[EngineClosed]] | None = None  # waits for an engine apart to end; then says why


def find_model(config: Config) -> Path:
    """Where the configured model lies, after fetching it if it is given by an id on a hub. Raises HubError."""
    with model_store(config) as store:
        return locate(config.model, store)


def load_text(config: Config, clock: Clock) -> LoadedText:
    """Read what of a model's files is about text. Raises ModelFileError, UnsupportedModel, HubError."""
    path = find_model(config)
    return text_of(open_checkpoint(path), path, config, clock)


def text_of(checkpoint: Checkpoint, path: Path, config: Config, clock: Clock) -> LoadedText:
    """The same of a checkpoint that is open."""
    tokenizer = Tokenizer.from_files(checkpoint.tokenizer, checkpoint.config.vocab_size)
    source = checkpoint.tokenizer.chat_template
    tool_format = _tool_format(config, source, tokenizer)
    template = ChatTemplate(source, tokenizer, clock, calls=tool_format)
    return LoadedText(
        name=checkpoint.name,
        fingerprint=checkpoint.fingerprint,
        text=TextTools(tokenizer, template, tool_format),
        path=path,
        tokenizer_files=checkpoint.tokenizer,
    )


def _tool_format(config: Config, template: str | None, tokenizer: Tokenizer) -> TextFormat:
    """The format in which the model writes tool calls: the setting's, or the one it is recognised to speak."""
    is_set = config.tool_format != "auto"
    description = FORMATS[config.tool_format] if is_set else recognise(template, tokenizer.control)
    return TextFormat(description, config.max_tool_calls, tokenizer.call_markers)


@asynccontextmanager
async def chatting(
    loaded: LoadedText,
    engine: EngineClient,
    config: Config,
    *,
    clock: Clock,
    ids: IdSource,
    on_broken_off: OnBrokenOff = nobody,
) -> AsyncIterator[RunningModel]:
    """Messages over an engine that runs; held conversations are closed at the end of the block."""
    limits = ChatLimits(max_sessions=config.max_sessions, prepare_threads=_PREPARE_THREADS)
    tokenizer, told = loaded.text.tokenizer, on_broken_off
    model = LocalModelClient(engine, loaded.text, ids=ids, clock=clock, limits=limits, on_broken_off=told)
    completion = LocalCompletionClient(engine, tokenizer, ids=ids, clock=clock, limits=limits, on_broken_off=told)
    sessions = LocalSessionClient(engine, tokenizer, model, limits=limits, on_broken_off=told)
    try:
        yield RunningModel(model, completion, sessions, engine, loaded)
    finally:
        await model.aclose()
