"""Agents as token ids on servers that take ids in a completion request: llama.cpp's and vLLM's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from tenuto.bench.driver import RunClock
from tenuto.bench.records import TurnRecord
from tenuto.bench.sse import TIMEOUT, stream_events
from tenuto.bench.stopwatch import TurnWatch
from tenuto.bench.workload import TokenWorkload
from tenuto.errors import TenutoError
from tenuto.ids import TokenId
from tenuto.protocol.engine import GenerateUsage

_WARM_UP = tuple(TokenId(5 + i % 100) for i in range(64))


@dataclass(frozen=True)
class Piece:
    """What one event says; counts only where it says them."""

    ids: Sequence[int] = ()
    num_context: int | None = None
    num_cached: int | None = None  # of the context: not computed


@dataclass(frozen=True)
class Dialect:
    """How a server is asked, and how its events are read."""

    path: str
    body: Callable[[int, Sequence[TokenId], int], dict[str, Any]]  # agent, ids, tokens wanted
    read: Callable[[dict[str, Any]], Piece]


def http_client() -> httpx.AsyncClient:
    """A connection for each request.

    Both servers close what was idle for 5 s, and httpx keeps it as long: a request that just then takes such a
    connection reads as if the server had disconnected.
    """
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    return httpx.AsyncClient(timeout=TIMEOUT, limits=limits, trust_env=False)


class CompletionAgents:
    """Every turn sends the whole history, as ids: servers find the beginning in their caches."""

    def __init__(
        self, http: httpx.AsyncClient, url: str, dialect: Dialect, workload: TokenWorkload, clock: RunClock
    ) -> None:
        self._http = http
        self._url = url.rstrip("/") + dialect.path
        self._dialect = dialect
        self._workload = workload
        self._clock = clock
        self._histories: list[list[TokenId]] = [[] for _ in workload.pieces]

    @property
    def clock(self) -> RunClock:
        return self._clock

    async def tool(self, agent: int) -> None:
        await self._clock.sleep(self._workload.shape.tool_s)

    async def warm_up(self) -> None:
        await self._ask(0, _WARM_UP, 2, TurnWatch(0, 0, 0, self._clock.now))

    async def turn(self, agent: int, turn: int) -> TurnRecord:
        """Raises TenutoError if the server counts otherwise than we do."""
        piece, history = self._workload.pieces[agent][turn], self._histories[agent]
        history += piece
        wanted = self._workload.shape.output_tokens
        watch = TurnWatch(agent, turn, len(piece), self._clock.now)
        new, context, cached = await self._ask(agent, history, wanted, watch)
        if len(new) != wanted or context != len(history):
            raise TenutoError(
                f"{self._url} read {context} tokens and generated {len(new)} in turn {turn}, "
                f"where {len(history)} were sent and {wanted} asked for"
            )
        history += new
        if cached is None:
            return watch.record(context)
        return watch.record(context, GenerateUsage(num_shared=cached, num_computed=context - cached))

    async def _ask(
        self, agent: int, ids: Sequence[TokenId], num_tokens: int, watch: TurnWatch
    ) -> tuple[list[TokenId], int | None, int | None]:
        """New ids; how many the server read; and how many of these it did not compute."""
        new: list[TokenId] = []
        context = cached = None
        async for event in stream_events(self._http, self._url, self._dialect.body(agent, ids, num_tokens)):
            piece = self._dialect.read(event)
            watch.saw_ids(piece.ids)
            new += map(TokenId, piece.ids)
            context = context if piece.num_context is None else piece.num_context
            cached = cached if piece.num_cached is None else piece.num_cached
        return new, context, cached
