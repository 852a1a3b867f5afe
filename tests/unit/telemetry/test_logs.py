"""One log for all: its two forms, what it never holds, and the line of each request."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import random
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import structlog

from tenuto.clock import RealClock
from tenuto.errors import QueueFull
from tenuto.ids import IdSource
from tenuto.server import Operations, create_app
from tenuto.server.access import AccessRules
from tenuto.server.keys import ApiKeys, make_key
from tenuto.telemetry import LogFormat, configure_logs
from tenuto.testing.scripted_model import Reply, ScriptedModel

CHAT = "/v1/chat/completions"
CANARY = "canary-9c3e77aa01"
CONTENT = "机密内容 confidential"


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def logged(form: LogFormat, *secrets: str) -> tuple[io.StringIO, Any]:
    stream = io.StringIO()
    configure_logs(stream, form, secrets=secrets)
    return stream, structlog.get_logger("tenuto.test")


def test_both_libraries_lines_have_one_form():
    stream, log = logged("json")
    log.info("ours", city="北京")
    logging.getLogger("tenuto.tools").info("a tool failed: %s", "超时")
    logging.getLogger("some.library").info("chatter")
    logging.getLogger("some.library").warning("trouble")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["ours", "a tool failed: 超时", "trouble"]
    assert all({"timestamp", "level"} <= set(line) for line in lines)
    assert lines[0]["city"] == "北京"


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_line_is_one_line_whatever_it_holds(form: LogFormat):
    stream, log = logged(form)
    log.info("event", value='two\nlines\r and "quotes" = \x1b[31m 中文')
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        log.exception("failed")
        logging.getLogger("tenuto.tools").exception("failed too")
    assert len(stream.getvalue().splitlines()) == 3
    assert stream.getvalue().count("\n") == 3


@pytest.mark.parametrize("form", ["text", "json"])
def test_secrets_are_hidden_wherever_they_stand(form: LogFormat):
    """B67."""
    key, _ = make_key("alice", "2026-11-30", random.Random(1).randbytes)
    stream, log = logged(form, CANARY)
    log.info(f"in the event {CANARY}", a=CANARY, b=[{"c": (f"x{CANARY}x",)}], d={CANARY: 1}, e=ValueError(CANARY))
    log.warning("keys", key=key, header=f"Authorization: Bearer {CANARY}x", other="bearer abc.def-ghi")
    logging.getLogger("httpx").warning("GET http://x/?key=%s", CANARY)
    try:
        raise RuntimeError(f"cannot use {key} or {CANARY}")
    except RuntimeError:
        log.exception("failed")
    text = stream.getvalue()
    assert CANARY not in text and key.split("-")[2] not in text and "abc.def" not in text
    assert key.split("-")[1] in text, "the public part of a key helps to find it"


def lines_of(form: LogFormat, script: Any, *bodies: dict[str, Any], key: str = CANARY) -> list[dict[str, Any]]:
    stream, _ = logged(form, CANARY)
    keys = ApiKeys(single=CANARY, clock=RealClock())
    app = create_app(
        ScriptedModel(script),
        served_names=("smol",),
        clock=RealClock(),
        ids=IdSource(1),
        operations=Operations(rules=AccessRules(keys=keys)),
    )

    async def main() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://tenuto") as client:
            for body in bodies:
                asked = {"model": "smol", "messages": [{"role": "user", "content": CONTENT}], **body}
                await client.post(CHAT, json=asked, headers={"Authorization": f"Bearer {key}"})
                await client.get("/health")

    asyncio.run(main())
    assert CONTENT not in stream.getvalue() and CANARY not in stream.getvalue() and "机密" not in stream.getvalue()
    return [json.loads(line) for line in stream.getvalue().splitlines()] if form == "json" else []


def test_each_request_has_one_line_without_content():
    (line,) = lines_of("json", ["答案" * 3], {})
    assert line["event"] == "request" and line["level"] == "info"
    expected = {"status": 200, "tenant": "default", "method": "POST", "route": CHAT, "operation": "chat"}
    expected |= {"output_tokens": 2, "cached_tokens": 0, "finish": "stop"}
    assert {name: line[name] for name in expected} == expected
    assert line["request_id"].startswith("req-") and line["prompt_tokens"] > 0
    assert 0 <= line["ttft_s"] <= line["total_s"]


def test_failures_say_their_kind_and_nothing_else():
    broken, late, refused = lines_of(
        "json",
        [QueueFull(f"full {CONTENT}"), Reply("好", error=QueueFull("late"))],
        {},
        {"stream": True},
        {"temperature": CONTENT},
    )
    assert (broken["status"], broken["error"]) == (429, "queue_full")
    assert (late["status"], late["error"]) == (200, "queue_full")
    assert (refused["status"], refused["error"]) == (400, "invalid_request")


def test_a_stranger_leaves_no_key_in_the_log():
    (line,) = lines_of("json", [], {}, key="x" + CANARY)
    assert (line["status"], line["error"]) == (401, "unauthorized")
    lines_of("text", ["好"], {})


def test_an_unexpected_error_is_told_without_its_words():
    class Broken(ScriptedModel):
        async def stream(self, request: Any):
            raise ValueError(CONTENT + CANARY)
            yield

    stream, _ = logged("text")
    app = create_app(Broken([]), served_names=("smol",), clock=RealClock(), ids=IdSource(1))

    async def main() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://tenuto") as client:
            body = {"model": "smol", "messages": [{"role": "user", "content": "x"}]}
            return await client.post(CHAT, json=body)

    response = asyncio.run(main())
    told = stream.getvalue() + response.text
    assert response.status_code == 500 and "request_failed" in told
    assert CANARY not in told and CONTENT not in told
    ids = [part for line in stream.getvalue().splitlines() for part in line.split() if part.startswith("request_id=")]
    assert ids == [f"request_id={response.headers['x-request-id']}"] * 2
