"""Agents as sessions of ids over HTTP: the same workload as `token_agents`, through `/v1/sessions`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import httpx

from tenuto.bench.driver import RunClock
from tenuto.bench.records import TurnRecord
from tenuto.bench.sse import Events, ServerRefused, stream_events
from tenuto.bench.stopwatch import TurnWatch
from tenuto.bench.workload import TokenWorkload
from tenuto.errors import TenutoError
from tenuto.protocol.engine import GenerateUsage


class SessionAgents:
    """Each agent in a session: a turn sends the server what is new, and nothing else.

    Args:
        url: up to and with the API's version.
        prefix: of the sessions' names, so that runs do not meet.
        streams: how each agent asks for its tokens; through `http` if not given.
    """

    def __init__(
        self,
        http: httpx.AsyncClient,
        url: str,
        workload: TokenWorkload,
        clock: RunClock,
        *,
        prefix: str = "bench",
        streams: Sequence[Events] | None = None,
    ) -> None:
        self._http = http
        self._url = f"{url}/sessions"
        self._workload = workload
        self._clock = clock
        self._prefix = prefix
        self._streams = streams or [partial(stream_events, http)] * workload.shape.agents

    @property
    def clock(self) -> RunClock:
        return self._clock

    async def tool(self, agent: int) -> None:
        wait_s = self._workload.shape.tool_s
        await self._post(f"{self._session(agent)}/suspend", {"seconds": wait_s, "reason": "tool"})
        await self._clock.sleep(wait_s)

    async def turn(self, agent: int, turn: int) -> TurnRecord:
        """Raises TenutoError; also if the server generated another number of tokens than was asked for."""
        piece, wanted = self._workload.pieces[agent][turn], self._workload.shape.output_tokens
        watch = TurnWatch(agent, turn, len(piece), self._clock.now)
        if turn == 0:
            await self._post("", {"id": self._name(agent)})
        body: dict[str, Any] = {"token_ids": list(piece), "max_tokens": wanted, "temperature": 0}
        url = f"{self._url}{self._session(agent)}/generate"
        usage: dict[str, Any] = {}
        async for event in self._streams[agent](url, {**body, "ignore_eos": True, "stream": True}):
            watch.saw_ids(event.get("token_ids") or ())
            usage = event.get("usage") or usage
        if watch.num_out != wanted:
            raise TenutoError(f"{url} generated {watch.num_out} tokens in turn {turn} where {wanted} were asked for")
        details = usage.get("prompt_tokens_details") or {}
        held, shared, computed = (int(details.get(f"{kind}_tokens", 0)) for kind in ("held", "shared", "computed"))
        told = GenerateUsage(num_held=held, num_shared=shared, num_computed=computed)
        return watch.record(int(usage.get("prompt_tokens", 0)), told)

    async def close(self) -> None:
        """Free the sessions."""
        for agent in range(self._workload.shape.agents):
            await self._http.delete(f"{self._url}{self._session(agent)}")

    def _name(self, agent: int) -> str:
        return f"{self._prefix}-{agent}"

    def _session(self, agent: int) -> str:
        return f"/{self._name(agent)}"

    async def _post(self, path: str, body: dict[str, Any]) -> None:
        try:
            answer = await self._http.post(self._url + path, json=body)
        except httpx.HTTPError as error:
            raise TenutoError(f"{self._url}{path}: {type(error).__name__} {error}".rstrip()) from error
        if answer.status_code >= 400:
            raise ServerRefused(self._url + path, answer.status_code, answer.text)
