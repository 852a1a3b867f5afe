"""Agents as chat conversations against any server with OpenAI's API: every turn sends the whole history as text."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import httpx

from tenuto.bench.driver import Progress, RunClock, drive
from tenuto.bench.records import RunRecord, TurnRecord
from tenuto.bench.sse import TIMEOUT, Events, ServerRefused, get_json, stream_events
from tenuto.bench.stopwatch import TurnWatch
from tenuto.bench.workload import TextWorkload
from tenuto.clock import Clock
from tenuto.errors import ConfigError, TenutoError
from tenuto.protocol.engine import GenerateUsage


class ChatServer:
    """One model of a server, asked as clients ask.

    Args:
        events: asks, and gives the answer's events as they come.
        url: up to and with the API's version, e.g. `http://localhost:8000/v1`.
    """

    def __init__(self, events: Events, url: str, model: str) -> None:
        self._events = events
        self.model = model
        self.url = f"{url}/chat/completions"
        self.more: dict[str, Any] = {"ignore_eos": True}  # further fields of every request

    async def warm_up(self, clock: RunClock) -> None:
        """A short request, so that no turn pays for what a server does once.

        A server that refuses `ignore_eos` is not asked for it again.
        """
        message = [{"role": "user", "content": "Hello. 你好。"}]
        watch = TurnWatch(0, 0, 0, clock.now)
        try:
            await self.ask(message, 2, watch)
        except ServerRefused as error:
            if error.status not in (400, 422) or "ignore_eos" not in self.more:
                raise
            del self.more["ignore_eos"]
            await self.ask(message, 2, watch)

    async def ask(
        self, messages: list[dict[str, str]], max_tokens: int, watch: TurnWatch
    ) -> tuple[str, Mapping[str, Any]]:
        """The reply's text, and the usage that the server reports. `watch` sees a token for each chunk with text."""
        body = {
            "model": self.model,
            "messages": messages,
            "max_tokens": max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self.more,
        }
        text, usage = "", None
        async for event in self._events(self.url, body):
            usage = event.get("usage") or usage
            for choice in event.get("choices") or ():
                delta = choice.get("delta") or {}
                text += delta.get("content") or ""
                # Thinking is tokens too, by whichever name a server sends it.
                if delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning"):
                    watch.saw(1 if watch.num_out < max_tokens else 0)
        if not isinstance(usage, Mapping):
            raise TenutoError(f"{self.url} reports no usage, so its tokens cannot be counted")
        return text, usage


class ChatAgents:
    """One conversation an agent; a result is sent as the user's message, which every server takes."""

    def __init__(self, server: ChatServer, texts: TextWorkload, clock: RunClock) -> None:
        self._server = server
        self._texts = texts
        self._clock = clock
        self._histories = [[{"role": "system", "content": texts.system}] for _ in texts.results]
        self._num_known = [0 for _ in texts.results]

    @property
    def clock(self) -> RunClock:
        return self._clock

    async def tool(self, agent: int) -> None:
        await self._clock.sleep(self._texts.shape.tool_s)

    async def turn(self, agent: int, turn: int) -> TurnRecord:
        """Raises TenutoError; also if the server generated another number of tokens than was asked for."""
        history = self._histories[agent]
        kind = "Result" if turn else "Task"
        history.append({"role": "user", "content": f"{kind}: {self._texts.results[agent][turn]}"})
        watch = TurnWatch(agent, turn, 0, self._clock.now)
        reply, use = await self._server.ask(history, self._texts.shape.output_tokens, watch)
        history.append({"role": "assistant", "content": reply})
        prompt, generated = _count(use, "prompt_tokens"), _count(use, "completion_tokens")
        wanted = self._texts.shape.output_tokens
        if generated != wanted:
            raise TenutoError(
                f"{self._server.url} generated {generated} tokens in turn {turn} where {wanted} were asked for; the "
                "server must know `ignore_eos`, or the model not end its turns early"
            )
        watch.saw(generated - watch.num_out, is_step=False)  # chunks that held several tokens, or half a character
        num_in, self._num_known[agent] = prompt - self._num_known[agent], prompt + generated
        details = use.get("prompt_tokens_details") or {}
        shared = details.get("cached_tokens")
        if not isinstance(shared, int):
            return watch.record(prompt, num_in=num_in)
        usage = GenerateUsage(num_shared=shared, num_computed=prompt - shared)
        return watch.record(prompt, usage, num_in, tells_steps=False)


async def run_on_server(
    url: str, texts: TextWorkload, clock: Clock, *, api_key: str | None = None, progress: Progress | None = None
) -> RunRecord:
    """All agents at once against a server; its first model is asked.

    Raises:
        ConfigError: `url` is no address.
        TenutoError: the server cannot be reached, refuses, breaks off or counts otherwise.
    """
    address = api_address(url)
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=texts.shape.agents)
    async with httpx.AsyncClient(timeout=TIMEOUT, limits=limits, headers=headers, trust_env=False) as http:
        server = await chat_server(http, address)
        run_clock = RunClock(clock)
        await server.warm_up(run_clock)
        turns = await drive(ChatAgents(server, texts, run_clock), texts.shape, at_once=True, progress=progress)
    return RunRecord(
        system=urlsplit(address).netloc,
        mode="server",
        settings={
            "url": address,
            "model": server.model,
            "ignore_eos": "asked for" if server.more else "not known to the server",
        },
        agents=texts.shape.agents,
        turns=turns,
        wall_s=max(turn.end_s for turn in turns),
    )


def api_address(url: str) -> str:
    """Up to and with the version; `/v1` where none is given. Raises ConfigError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        raise ConfigError(f"{url!r:.200} is no address of a server: give one such as http://localhost:8000")
    return url.rstrip("/") if parts.path.strip("/") else f"{parts.scheme}://{parts.netloc}/v1"


async def chat_server(http: httpx.AsyncClient, address: str) -> ChatServer:
    """The first model that a server lists. Raises TenutoError if there is none."""
    listed = await get_json(http, f"{address}/models")
    data = listed.get("data") if isinstance(listed, dict) else None
    name = data[0].get("id") if isinstance(data, list) and data and isinstance(data[0], dict) else None
    if not isinstance(name, str):
        raise TenutoError(f"{address}/models lists no model")
    return ChatServer(partial(stream_events, http), address, name)


def _count(usage: Mapping[str, Any], name: str) -> int:
    value = usage.get(name)
    if not isinstance(value, int) or value < 0:
        raise TenutoError(f"the server's usage has no {name}")
    return value
