"""Streams to the letter: what goes over the wire for a fixed reply, id and time. Written anew with TENUTO_GOLDEN=1."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from embedded_tokenizer import embedded_tokenizer
from tenuto.chat import LocalCompletionClient
from tenuto.clock import RealClock
from tenuto.errors import EngineClosed
from tenuto.ids import IdSource
from tenuto.server import OtherClients, create_app
from tenuto.testing.scripted_engine import ScriptedEngine
from tenuto.testing.scripted_model import Reply, ScriptedModel

FOLDER = Path(__file__).parent
TOKENIZER = embedded_tokenizer()
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}
CALLS = Reply("我查", reasoning="先想想", calls=(("weather", {"city": "北京"}), ("ping", {})))
SCORED = {"include": ["message.output_text.logprobs"], "top_logprobs": 1}
RESPONSES, COMPLETIONS = "/v1/responses", "/v1/completions"


class FixedDay(RealClock):
    def today(self) -> datetime:
        return datetime(2026, 1, 5, 9, 0, tzinfo=UTC)


TRANSCRIPTS: dict[str, tuple[str, Reply | str, dict[str, Any]]] = {
    "responses_text": (RESPONSES, "你好，世界", {"input": "你好", **SCORED}),
    "responses_calls": (RESPONSES, CALLS, {"input": "天气？", "tools": [WEATHER], "instructions": "说中文"}),
    "responses_incomplete": (RESPONSES, "一二三四五六", {"input": "数数", "max_output_tokens": 1}),
    "responses_failed": (RESPONSES, Reply("一二三", error=EngineClosed("the engine has stopped")), {"input": "数数"}),
    "completions_text": (COMPLETIONS, "", {"prompt": "你好", "stream_options": {"include_usage": True}}),
    "completions_scored": (COMPLETIONS, "", {"prompt": ["一", "二"], "logprobs": 1, "stop": "界"}),
}


def transcript(path: str, reply: Reply | str, fields: dict[str, Any]) -> str:
    engine = ScriptedEngine([TOKENIZER.encode("，世界 😀")] * 2, ids_per_delta=2)
    clock = FixedDay()
    completion = LocalCompletionClient(engine, TOKENIZER, ids=IdSource(3), clock=clock)
    app = create_app(
        ScriptedModel([reply]),
        served_names=("smol",),
        clock=clock,
        ids=IdSource(1),
        others=OtherClients(completion=completion),
    )

    async def main() -> str:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://tenuto") as client:
            body = {"model": "smol", "stream": True, **fields}
            return (await client.post(path, json=body)).text

    return asyncio.run(main())


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_the_stream_is_what_it_was(name: str):
    kept, found = FOLDER / f"{name}.sse", transcript(*TRANSCRIPTS[name])
    if os.environ.get("TENUTO_GOLDEN"):
        kept.write_text(found, encoding="utf-8")
    assert found == kept.read_text(encoding="utf-8")
