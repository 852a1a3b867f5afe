"""OpenTelemetry spans after the GenAI semantic conventions; nothing of OpenTelemetry is loaded unless it is wanted.

Attributes and events: docs/telemetry.md. After opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans and W3C Trace
Context.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from tenuto.clock import Clock
from tenuto.protocol.chat import ChatRequest, NamedTool
from tenuto.protocol.messages import Message
from tenuto.telemetry.record import RequestRecord, Work

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

_MAX_CONTENT_CHARS = 200_000
_PROPAGATED = (b"traceparent", b"tracestate")


class Tracing:
    """Starts a span for each request, as a child of the caller's, and fills it in.

    Args:
        content: write prompts and replies into the spans too.
    """

    def __init__(self, provider: TracerProvider, clock: Clock, *, content: bool) -> None:
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("tenuto")
        self._kind = SpanKind.SERVER
        self._propagator = TraceContextTextMapPropagator()
        self._clock = clock
        self.content = content

    def begin(self, record: RequestRecord, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """The request's span."""
        carrier = {name.decode(): value.decode("latin-1") for name, value in headers if name in _PROPAGATED}
        record.span = self._tracer.start_span(
            record.method,
            context=self._propagator.extract(carrier),
            kind=self._kind,
            attributes={"http.request.method": record.method, "tenuto.request_id": record.request_id},
            start_time=self._now_ns(),
        )

    def asked(self, record: RequestRecord, request: ChatRequest) -> None:
        """What a chat request wants."""
        sampling = request.sampling
        wanted: dict[str, Any] = {
            "gen_ai.request.temperature": sampling.temperature,
            "gen_ai.request.top_p": sampling.top_p,
            "gen_ai.request.seed": sampling.seed,
            "gen_ai.request.choice.count": request.n if request.n != 1 else None,
            "gen_ai.request.max_tokens": request.max_tokens,
            "gen_ai.request.top_k": sampling.top_k or None,
            "gen_ai.request.frequency_penalty": sampling.frequency_penalty or None,
            "gen_ai.request.presence_penalty": sampling.presence_penalty or None,
            "gen_ai.output.type": "json" if request.response is not None else "text",
            "tenuto.tool_choice": "named" if isinstance(request.tool_choice, NamedTool) else request.tool_choice,
            "tenuto.num_tools": len(request.tools),
        }
        if self.content:
            wanted["gen_ai.input.messages"] = _content(request.messages)
        _set(record, wanted)

    def event(self, record: RequestRecord, name: str, **attributes: Any) -> None:
        assert record.span is not None
        record.span.add_event(name, attributes, timestamp=self._now_ns())

    def replied(self, record: RequestRecord, message: Message) -> None:
        """One whole reply."""
        if self.content:
            _set(record, {"gen_ai.output.messages": _content((message,))})

    def end(self, record: RequestRecord, model: str) -> None:
        """Everything known of the request, and the end of its span."""
        span = record.span
        assert span is not None
        route = record.route or "other"
        name = f"{record.method} {route}"
        attributes: dict[str, Any] = {
            "http.route": record.route,
            "http.response.status_code": record.status,
            "tenuto.tenant": record.tenant or None,
            "error.type": record.error,
        }
        if record.work is not None:
            name = f"{record.work.operation} {model}"
            attributes |= _work_attributes(record, record.work, model)
        _set(record, attributes)
        span.update_name(name)
        if record.error is not None:
            from opentelemetry.trace import StatusCode

            span.set_status(StatusCode.ERROR, record.error)
        span.end(end_time=self._now_ns())

    def close(self, timeout_s: float) -> None:
        """Sends what is left. Blocks, up to the timeout: call it off the event loop."""
        self._provider.force_flush(int(timeout_s * 1000))
        self._provider.shutdown()

    def _now_ns(self) -> int:
        return int(self._clock.today().timestamp() * 1e9)


def _work_attributes(record: RequestRecord, work: Work, model: str) -> dict[str, Any]:
    ttft_s = record.ttft_s()
    return {
        "gen_ai.operation.name": work.operation,
        "gen_ai.provider.name": "tenuto",
        "gen_ai.request.model": model,
        "gen_ai.response.model": model,
        "gen_ai.response.id": record.request_id,
        "gen_ai.response.finish_reasons": tuple(work.reasons) or None,
        "gen_ai.conversation.id": work.session,
        "gen_ai.usage.input_tokens": record.total("num_prompt"),
        "gen_ai.usage.output_tokens": record.total("num_generated"),
        "gen_ai.usage.cache_read.input_tokens": record.total("num_held") + record.total("num_shared"),
        "gen_ai.response.time_to_first_chunk": ttft_s,
        "tenuto.run_id": work.run,
        "tenuto.forced_tokens": record.total("num_forced"),
        "tenuto.accepted_tokens": record.total("num_accepted"),
        "tenuto.queued_s": work.queued_s,
        "tenuto.reuse_break": work.reuse_break,
    }


def _set(record: RequestRecord, attributes: Mapping[str, Any]) -> None:
    assert record.span is not None
    record.span.set_attributes({name: value for name, value in attributes.items() if value is not None})


def _content(messages: tuple[Message, ...]) -> str:
    """Messages as the conventions' JSON, cut at a bound."""
    made = []
    for message in messages:
        parts: list[dict[str, Any]] = []
        if message.role == "tool":
            parts.append({"type": "tool_call_response", "id": message.tool_call_id, "response": message.content})
        elif message.content:
            parts.append({"type": "text", "content": message.content})
        parts += [
            {"type": "tool_call", "id": call.id, "name": call.name, "arguments": msgspec.to_builtins(call.arguments)}
            for call in message.tool_calls
        ]
        made.append({"role": message.role, "parts": parts})
    return json.dumps(made, ensure_ascii=False)[:_MAX_CONTENT_CHARS]


def open_tracing(
    endpoint: str, clock: Clock, *, headers: Mapping[str, str], ratio: float, content: bool, version: str
) -> Tracing:
    """Spans sent by OTLP over HTTP, in batches from a thread of its own; what cannot be sent is dropped, and logged.

    Args:
        endpoint: of the collector, e.g. `http://127.0.0.1:4318`; `/v1/traces` is added.
        headers: sent along, e.g. credentials.
        ratio: part of the requests that are traced if their caller has not decided it.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

    resource = Resource.create({"service.name": "tenuto", "service.version": version})
    provider = TracerProvider(sampler=ParentBasedTraceIdRatio(ratio), resource=resource, shutdown_on_exit=False)
    url = endpoint.rstrip("/") + "/v1/traces"
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(url, headers=dict(headers), timeout=5)))
    return Tracing(provider, clock, content=content)
