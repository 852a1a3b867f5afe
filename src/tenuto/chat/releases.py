"""Which KV a conversation or a run has left behind, and giving it up: a `ReleaseClient`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import msgspec
import numpy as np

from tenuto.chat.computed_runs import ComputedRuns, Ids
from tenuto.clock import Clock
from tenuto.errors import InvalidRequest, TemplateError
from tenuto.ids import TokenId
from tenuto.protocol.chat import ChatRequest
from tenuto.protocol.engine import EngineClient
from tenuto.protocol.hints import RunHints
from tenuto.protocol.messages import Message
from tenuto.protocol.release import KeptPart

Encode: TypeAlias = Callable[[ChatRequest], Awaitable[Sequence[TokenId]]]
"""The ids a session would hold before the reply to a request. Raises what a request may."""


class LocalReleases:
    """Implements `ReleaseClient` over an engine's prefix cache. Chat tells it what it computes."""

    def __init__(self, engine: EngineClient, encode: Encode, clock: Clock, runs: ComputedRuns) -> None:
        self._engine = engine
        self._encode = encode
        self._clock = clock
        self._runs = runs

    def computed(self, hints: RunHints, ids: Sequence[TokenId]) -> None:
        """Prompt, or prompt and reply, of a turn of the hints' run."""
        self._runs.add(hints, ids, self._clock.now())

    async def release_conversation(self, request: ChatRequest, kept: KeptPart) -> int:
        whole = np.array(await self._encode(request), np.int32)
        num_kept = await self._num_kept(request, kept, whole)
        if num_kept >= len(whole):
            return 0
        # Of the run's other ways those that hold something of what is given up: turns before a rewriting, replies.
        ways = [way for way in self._runs.of(request.hints) if _num_common(way, whole) > num_kept]
        return await self._release([*ways, whole], num_kept, request.hints)

    async def release_run(self, hints: RunHints) -> int:
        ways = self._runs.of(hints)
        self._runs.drop(hints)
        return await self._release(ways, 0, hints)

    async def _release(self, ways: Sequence[Ids], num_kept: int, hints: RunHints) -> int:
        """Where several ways part, the last of them takes their common beginning with it."""
        return sum([await self._engine.release(way.tolist(), num_kept, hints) for way in ways])

    async def _num_kept(self, request: ChatRequest, kept: KeptPart, whole: Ids) -> int:
        """How many ids the kept part has in common with the whole."""
        messages, num_tools = request.messages, kept.num_tools
        tools = request.tools if num_tools is None else request.tools[:num_tools]
        keeps_tools = len(tools) == len(request.tools)
        if kept.num_messages >= len(messages) and keeps_tools:
            return len(whole)
        for beginning in _beginnings(messages, kept.num_messages):
            part = msgspec.structs.replace(request, messages=beginning, tools=tools, tool_choice="auto")
            if request.tool_choice == "none":
                part = msgspec.structs.replace(part, tool_choice="none")
            try:
                return _num_common(np.array(await self._encode(part), np.int32), whole)
            except (InvalidRequest, TemplateError):
                continue  # not every beginning is a conversation
        return 0


def _beginnings(messages: Sequence[Message], num_kept: int) -> list[tuple[Message, ...]]:
    """What may be kept, the most first. A turn of calls is one with its results: without one of them it goes whole."""
    kept = tuple(messages[:num_kept])
    before = kept
    while before and before[-1].role == "tool":
        before = before[:-1]
    if before and before[-1].tool_calls:
        before = before[:-1]
    return [each for each in (kept, before) if each]


def _num_common(one: Ids, other: Ids) -> int:
    """Length of the common beginning."""
    length = min(len(one), len(other))
    differs = np.flatnonzero(one[:length] != other[:length])
    return int(differs[0]) if len(differs) else length
