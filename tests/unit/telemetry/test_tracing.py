"""Spans after the GenAI conventions: their attributes, events and parents; nothing of content or keys unless asked."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tenuto.clock import RealClock
from tenuto.errors import QueueFull
from tenuto.ids import IdSource
from tenuto.protocol.chat import ModelInfo
from tenuto.server import Operations, create_app
from tenuto.server.access import AccessRules
from tenuto.server.keys import ApiKeys
from tenuto.telemetry import Telemetry
from tenuto.telemetry.tracing import Tracing, open_tracing
from tenuto.testing.scripted_model import Reply, ScriptedModel, call

CHAT = "/v1/chat/completions"
CANARY = "canary-5d20e8f1aa"
CONTENT = "机密内容"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
DOCS = (Path(__file__).parents[3] / "docs" / "telemetry.md").read_text(encoding="utf-8")
TOOL = {"type": "function", "function": {"name": "t", "parameters": {"type": "object", "properties": {}}}}


def traced(
    script: Any, *requests: tuple[str, str, Any], content: bool = False, **headers: str
) -> tuple[list[ReadableSpan], list[httpx.Response]]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    clock = RealClock()
    telemetry = Telemetry(clock, tracing=Tracing(provider, clock, content=content))
    telemetry.served(ModelInfo(name="smol", max_model_tokens=100))
    rules = AccessRules(keys=ApiKeys(single=CANARY, clock=clock))
    app = create_app(
        ScriptedModel(script),
        served_names=("smol",),
        clock=clock,
        ids=IdSource(1),
        operations=Operations(telemetry=telemetry, rules=rules),
    )

    async def main() -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://tenuto") as client:
            sent = {"Authorization": f"Bearer {CANARY}", **headers}
            return [await client.request(method, path, json=body, headers=sent) for method, path, body in requests]

    responses = asyncio.run(main())
    return list(exporter.get_finished_spans()), responses


def ask(**fields: Any) -> tuple[str, str, Any]:
    return "POST", CHAT, {"model": "smol", "messages": [{"role": "user", "content": CONTENT}], **fields}


def test_a_chat_is_one_span_with_its_story():
    (span,), (response,) = traced(
        ["答案" * 3], ask(temperature=0.5, max_tokens=9, top_k=3, seed=7, stream=True), traceparent=PARENT
    )
    assert span.name == "chat smol" and span.kind.name == "SERVER"
    assert span.parent is not None and format(span.parent.span_id, "016x") == "b7ad6b7169203331"
    assert format(span.context.trace_id, "032x") == "0af7651916cd43dd8448eb211c80319c"
    assert [event.name for event in span.events] == ["queued", "first_token", "finished"]
    assert [event.timestamp for event in span.events] == sorted(event.timestamp for event in span.events)
    attributes = dict(span.attributes or {})
    expected = {
        "http.route": CHAT,
        "http.response.status_code": 200,
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "tenuto",
        "gen_ai.request.model": "smol",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.top_k": 3,
        "gen_ai.request.seed": 7,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.response.finish_reasons": ("stop",),
        "tenuto.request_id": response.headers["x-request-id"],
        "tenuto.tenant": "default",
    }
    assert {name: attributes[name] for name in expected} == expected
    assert attributes["gen_ai.usage.input_tokens"] > 0
    told = span.to_json()
    assert CONTENT not in json.loads(json.dumps(told)) and "答案" not in told and CANARY not in told


def test_content_is_traced_only_where_it_is_asked_for():
    (span,), _ = traced([call("t", 城市="北京")], ask(tools=[TOOL]), content=True)
    attributes = dict(span.attributes or {})
    (asked,) = json.loads(attributes["gen_ai.input.messages"])
    assert asked == {"role": "user", "parts": [{"type": "text", "content": CONTENT}]}
    (answered,) = json.loads(attributes["gen_ai.output.messages"])
    assert answered["role"] == "assistant" and answered["parts"][0]["arguments"] == {"城市": "北京"}
    assert CANARY not in span.to_json()


def test_failures_mark_their_span():
    spans, _ = traced(
        [QueueFull(CONTENT), Reply("好", error=QueueFull("late"))],
        ask(),
        ask(stream=True),
        ask(n="x"),
        ("GET", "/x", None),
    )
    assert [dict(span.attributes or {}).get("error.type") for span in spans] == [
        "queue_full",
        "queue_full",
        "invalid_request",
        "not_found",
    ]
    assert [span.name for span in spans] == ["chat smol", "chat smol", f"POST {CHAT}", "GET other"]
    assert all(span.status.status_code.name == "ERROR" for span in spans)
    assert not any(CONTENT in span.to_json() for span in spans)


def test_probes_have_no_span_and_a_broken_parent_is_none():
    spans, _ = traced(["好"], ("GET", "/health", None), ("GET", "/ready", None), ("GET", "/metrics", None))
    assert spans == []
    (span,), _ = traced(["好"], ask(), traceparent="00-junk", tracestate="x" * 600)
    assert span.parent is None


@pytest.mark.parametrize("sampled", ["00", "01"])
def test_the_caller_decides_whether_it_is_sampled(sampled: str):
    collector = Collector()
    with collector:
        clock = RealClock()
        tracing = open_tracing(collector.url, clock, headers={"x-token": CANARY}, ratio=0.0, content=False, version="1")
        telemetry = Telemetry(clock, tracing=tracing)
        app = create_app(
            ScriptedModel(["好"]),
            served_names=("smol",),
            clock=clock,
            ids=IdSource(1),
            operations=Operations(telemetry=telemetry),
        )

        async def main() -> None:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://tenuto") as client:
                method, path, body = ask()
                headers = {"traceparent": PARENT[:-2] + sampled}
                assert (await client.request(method, path, json=body, headers=headers)).status_code == 200

        asyncio.run(main())
        tracing.close(5)
    names = [
        span.name
        for batch in collector.batches
        for r in batch.resource_spans
        for s in r.scope_spans
        for span in s.spans
    ]
    assert names == (["chat "] if sampled == "01" else [])
    assert collector.tokens == {CANARY} if sampled == "01" else not collector.tokens
    assert not any(CANARY in str(batch) or CONTENT in str(batch) for batch in collector.batches)


class Collector:
    """What takes OTLP over HTTP, as any collector does."""

    def __init__(self) -> None:
        self.batches: list[ExportTraceServiceRequest] = []
        self.tokens: set[str] = set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == "/v1/traces"
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.batches.append(ExportTraceServiceRequest.FromString(body))
                outer.tokens.add(self.headers["x-token"])
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def test_without_a_collector_nothing_of_it_is_loaded():
    code = "import sys, tenuto.server, tenuto.cli.serving; print([m for m in sys.modules if 'opentelemetry.sdk' in m])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert loaded.stdout.strip() == "[]"


def test_every_attribute_and_event_is_documented():
    spans, _ = traced(
        ["好", QueueFull("x"), call("t")],
        ask(temperature=1, top_p=0.5, top_k=4, max_tokens=5, n=1, seed=1, presence_penalty=1, frequency_penalty=1),
        ask(),
        ask(tools=[TOOL], tool_choice="required"),
        content=True,
    )
    documented = set(re.findall(r"`([a-z_.]+)`", DOCS))
    for span in spans:
        assert set(span.attributes or {}) <= documented
        assert {event.name for event in span.events} <= documented
