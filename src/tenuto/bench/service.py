"""The experiment of `tenuto bench service`: the same agents in this process and through the server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import TypeAlias

import httpx
import msgspec

from tenuto.bench.bare import bare_client
from tenuto.bench.chat_agents import ChatAgents, ChatServer, chat_server
from tenuto.bench.driver import Progress, RunClock, drive
from tenuto.bench.local import LocalBench
from tenuto.bench.model_agents import ask
from tenuto.bench.records import RunRecord, TurnRecord
from tenuto.bench.report import Ratio, ratio
from tenuto.bench.session_agents import SessionAgents
from tenuto.bench.shape import Shape
from tenuto.bench.sse import TIMEOUT
from tenuto.bench.stopwatch import TurnWatch
from tenuto.bench.summary import Summary, summarise
from tenuto.bench.workload import TextWorkload, TokenWorkload, encode_texts, make_texts
from tenuto.clock import Clock
from tenuto.ids import TokenId
from tenuto.protocol.chat import ModelClient
from tenuto.protocol.messages import Message

Encode: TypeAlias = Callable[[str], list[TokenId]]

_HISTORY_WORDS = 400  # of the idle client's conversation: some 500 tokens
_QUESTIONS = 40
_PAUSE_S = 0.05  # until nothing of the last answer is left to be done anywhere


class FirstTokens(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds to the first token of one idle client, asking in turns here and there."""

    here_ms: tuple[float, ...]
    served_ms: tuple[float, ...]  # asked through little more than a socket
    httpx_ms: tuple[float, ...]  # asked through what OpenAI's client is made of


class ServiceBench:
    """
    Args:
        here: the engine in this process, with the server's settings.
        address: of the server, up to and with `/v1`.
    """

    def __init__(
        self, here: LocalBench, http: httpx.AsyncClient, address: str, clock: Clock, progress: Progress | None = None
    ) -> None:
        self._here = here
        self._http = http
        self._address = address
        self._clock = clock
        self._progress = progress

    async def rounds(self, shape: Shape, encode: Encode, num_rounds: int) -> tuple[list[Summary], list[Ratio]]:
        """Plain chat here and served, sessions of ids here and served, in turns. Each round says something new, since
        the server remembers what it has computed.

        Raises TenutoError where the server refuses or counts otherwise.
        """
        chat: list[Summary] = []
        served_chat: list[Summary] = []
        held: list[Summary] = []
        served_held: list[Summary] = []
        for number in range(num_rounds):
            texts = make_texts(msgspec.structs.replace(shape, seed=shape.seed + number))
            tokens = encode_texts(texts, encode)
            chat.append(summarise(await self._here.run_chat(texts)))
            served_chat.append(summarise(await self._chat(texts)))
            held.append(summarise(await self._here.run(tokens, "held")))
            served_held.append(summarise(await self._sessions(tokens, f"bench-{number}")))
        ratios = [
            ratio("agents/s: plain chat, served over in process", _rates(served_chat), _rates(chat)),
            ratio("agents/s: sessions, served over in process", _rates(served_held), _rates(held)),
            ratio("agents/s: plain chat served over sessions in process", _rates(served_chat), _rates(held)),
        ]
        return [*chat, *served_chat, *held, *served_held], ratios

    async def _chat(self, texts: TextWorkload) -> RunRecord:
        server, clock = await chat_server(self._http, self._address), RunClock(self._clock)
        await server.warm_up(clock)
        agents = ChatAgents(server, texts, clock)
        turns = await drive(agents, texts.shape, at_once=True, progress=self._progress)
        return _record("chat, served", texts.shape, turns)

    async def _sessions(self, tokens: TokenWorkload, prefix: str) -> RunRecord:
        """Each agent streams through little more than a socket: eight busy clients on the server's own processors would
        be a good part of what is measured."""
        async with AsyncExitStack() as stack:
            bare = [await stack.enter_async_context(bare_client(self._address)) for _ in range(tokens.shape.agents)]
            streams = [client.stream_events for client in bare]
            clock = RunClock(self._clock)
            agents = SessionAgents(self._http, self._address, tokens, clock, prefix=prefix, streams=streams)
            turns = await drive(agents, tokens.shape, at_once=True, progress=self._progress)
            await agents.close()
        return _record("sessions, served", tokens.shape, turns)

    async def first_tokens(self, model: ModelClient) -> FirstTokens:
        """One idle client with a history of some 500 tokens asks a short question again and again: here, and served
        through two clients, since a client's own work is part of what it waits."""
        system = make_texts(Shape(prompt_words=_HISTORY_WORDS, agents=1, turns=1)).system
        times: tuple[list[float], ...] = ([], [], [])
        async with bare_client(self._address) as bare:
            through_httpx = await chat_server(self._http, self._address)
            through_socket = ChatServer(bare.stream_events, self._address, through_httpx.model)

            async def here(text: str, watch: TurnWatch) -> None:
                messages = [Message(role="system", content=system), Message(role="user", content=text)]
                await ask(model, messages, 2, watch)

            def served(server: ChatServer) -> Callable[[str, TurnWatch], Awaitable[object]]:
                system_message = {"role": "system", "content": system}
                return lambda text, watch: server.ask([system_message, {"role": "user", "content": text}], 2, watch)

            for number in range(_QUESTIONS + 2):  # the first two fill the caches
                ways = (here, served(through_socket), served(through_httpx))
                for way, (one, kept) in enumerate(zip(ways, times, strict=True)):
                    await self._clock.sleep(_PAUSE_S)
                    watch = TurnWatch(0, 0, 0, self._clock.now)
                    await one(f"Question {number}.{way}: 北京的第 {number} 个问题?", watch)
                    kept.append(watch.record(1).ttft_s * 1000)
        here_ms, served_ms, httpx_ms = (tuple(kept[2:]) for kept in times)
        return FirstTokens(here_ms=here_ms, served_ms=served_ms, httpx_ms=httpx_ms)


def service_client() -> httpx.AsyncClient:
    return httpx.AsyncClient(timeout=TIMEOUT, limits=httpx.Limits(max_connections=None), trust_env=False)


def _record(mode: str, shape: Shape, turns: tuple[TurnRecord, ...]) -> RunRecord:
    return RunRecord(
        system="tenuto",
        mode=mode,
        settings={},
        agents=shape.agents,
        turns=turns,
        wall_s=max(turn.end_s for turn in turns),
    )


def _rates(runs: Sequence[Summary]) -> list[float]:
    return [run.agents_per_s for run in runs]
