"""Replies that break off count the tokens that were generated for them, whatever route and reason."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from chat_harness import TOKENIZER, Chat
from tenuto.chat import LocalCompletionClient, LocalModelClient, LocalSessionClient, TextTools
from tenuto.clock import RealClock
from tenuto.errors import EngineClosed
from tenuto.ids import IdSource, SessionId, TokenId
from tenuto.server import Operations, OtherClients, create_app
from tenuto.telemetry import Telemetry
from tenuto.testing.scripted_engine import ScriptedEngine

CHAT = {"messages": [{"role": "user", "content": "北京明天天气怎么样？"}]}
ROUTES: list[tuple[str, dict[str, Any], int]] = [
    ("/v1/chat/completions", CHAT, 1),
    ("/v1/chat/completions", CHAT | {"n": 3}, 3),
    ("/v1/chat/completions", CHAT | {"session_id": "s", "stop": ["没有"]}, 1),
    ("/v1/responses", {"input": "你好"}, 1),
    ("/v1/completions", {"prompt": ["一", "二"], "n": 2, "max_tokens": 100_000}, 4),
    ("/v1/sessions/s/generate", {"token_ids": [1]}, 1),
    ("/v1/sessions/s/generate", {"token_ids": [1], "stop": ["没有"]}, 1),
]
TOKENS_BEFORE_THE_END = 40


class Stage:
    """A server over an engine that says the same word for ever, until it is told to fail."""

    def __init__(self) -> None:
        self.num_generated = 0
        self.fails_at: int | None = None
        self.telemetry = Telemetry(RealClock())
        self.engine = ScriptedEngine(self._next, max_model_tokens=10**6, fault=self._fault)
        clock, told, chat = RealClock(), self.telemetry.broken_off, Chat()
        text = TextTools(TOKENIZER, chat.template, chat.tool_format)
        model = LocalModelClient(self.engine, text, ids=IdSource(7), clock=clock, on_broken_off=told)
        completion = LocalCompletionClient(self.engine, TOKENIZER, ids=IdSource(8), clock=clock, on_broken_off=told)
        sessions = LocalSessionClient(self.engine, TOKENIZER, model, on_broken_off=told)
        self.app = create_app(
            model,
            served_names=("smol",),
            clock=clock,
            ids=IdSource(1),
            others=OtherClients(engine=self.engine, completion=completion, sessions=sessions),
            operations=Operations(telemetry=self.telemetry),
        )

    def _next(self, tokens: Sequence[TokenId]) -> TokenId:
        self.num_generated += 1
        return TokenId(500)

    def _fault(self, name: str, _: int) -> Exception | None:
        is_due = name == "delta" and self.num_generated == self.fails_at
        return EngineClosed("the engine has stopped") if is_due else None

    async def request(self, path: str, body: dict[str, Any], leave: Callable[[], bool] | None = None) -> None:
        """A POST whose client goes as soon as `leave` says so."""
        pieces = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

        async def receive() -> Any:
            if pieces:
                return pieces.pop()
            while leave is None or not leave():  # noqa: ASYNC110
                await asyncio.sleep(0)
            return {"type": "http.disconnect"}

        async def send(_: Any) -> None:
            await asyncio.sleep(0)

        headers = [(b"content-type", b"application/json"), (b"host", b"localhost")]
        scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
        scope |= {"headers": headers, "http_version": "1.1", "client": None, "state": {}}
        async with asyncio.timeout(20):
            await self.app(scope, receive, send)

    def metric(self, name: str) -> float:
        """Over all labels."""
        families = text_string_to_metric_families(self.telemetry.metrics.exposition(None).decode())
        return sum(sample.value for family in families for sample in family.samples if sample.name == name)


async def gone(stage: Stage, path: str, body: dict[str, Any]) -> None:
    await stage.request(path, body, lambda: stage.num_generated >= TOKENS_BEFORE_THE_END)


async def failed(stage: Stage, path: str, body: dict[str, Any]) -> None:
    stage.fails_at = TOKENS_BEFORE_THE_END
    await stage.request(path, body)


async def stopped(stage: Stage, path: str, body: dict[str, Any]) -> None:
    """As the end of a drain does it."""
    running = asyncio.create_task(stage.request(path, body))
    while stage.num_generated < TOKENS_BEFORE_THE_END:  # noqa: ASYNC110
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body", "num_replies"), ROUTES)
@pytest.mark.parametrize("end", [gone, failed, stopped])
def test_what_was_generated_is_counted(
    path: str, body: dict[str, Any], num_replies: int, end: Callable[..., Any], stream: bool
) -> None:
    async def main() -> None:
        stage = Stage()
        if path.startswith("/v1/sessions"):
            await stage.request("/v1/sessions", {"id": "s"})
            assert SessionId("s") in stage.engine.sessions
        sent = body if path.startswith("/v1/sessions") else {"model": "smol", **body}
        with capture_logs() as logs:
            await end(stage, path, sent | {"stream": stream})
        line = logs[-1]
        assert line["event"] == "request" and not line.keys() & {"finish", "prompt_tokens", "cached_tokens"}
        # The last id of each reply may have been on its way.
        assert TOKENS_BEFORE_THE_END - num_replies <= stage.num_generated - num_replies <= line["output_tokens"]
        assert line["output_tokens"] <= stage.num_generated
        assert (
            stage.metric("tenuto_output_tokens_total") == line["output_tokens"] >= TOKENS_BEFORE_THE_END - num_replies
        )
        assert stage.metric("tenuto_replies_total") == 1

    asyncio.run(main())
