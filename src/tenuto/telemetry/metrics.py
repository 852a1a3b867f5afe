"""The server's metrics, in a registry of their own. Every label takes few values, none of which a client chooses."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import Metric

from tenuto.protocol.chat import ModelInfo
from tenuto.protocol.counters import EngineCounters
from tenuto.telemetry.engine_metrics import EngineCollector
from tenuto.telemetry.record import CANCELLED, FAILED, RequestRecord, Work

CONTENT_TYPE = CONTENT_TYPE_LATEST

_TTFT_BUCKETS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60)
_TPOT_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1)
_DURATION_BUCKETS_S = (0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_OTHER = "other"


class _Registry(CollectorRegistry):
    """Leaves out the time at which each series began: the library adds it to the text format as a series of its own,
    which doubles their number and says nothing that the values' own history does not."""

    def collect(self) -> Iterable[Metric]:
        for family in super().collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family


class ServerMetrics:
    """Counts requests and what the model did for them. One for each server: nothing is global."""

    def __init__(self) -> None:
        self.registry = _Registry()
        self._engine = EngineCollector()
        self.registry.register(self._engine)
        counter, gauge, histogram = self._counter, self._gauge, self._histogram
        self._requests = counter("http_requests", "Requests answered.", "method", "route", "status")
        self._duration = histogram("http_request_seconds", "Arrival to the last byte.", _DURATION_BUCKETS_S, "route")
        self._open = gauge("http_requests_open", "Requests being answered.")
        self._errors = counter("errors", "Requests that ended with an error.", "kind")
        self._ttft = histogram(
            "time_to_first_token_seconds", "From a request's arrival to its first token.", _TTFT_BUCKETS_S, "operation"
        )
        self._tpot = histogram(
            "time_per_output_token_seconds", "Of a reply, after its first token.", _TPOT_BUCKETS_S, "operation"
        )
        self._queued = histogram("queue_seconds", "Waiting in the engine's queue.", _DURATION_BUCKETS_S, "operation")
        self._replies = counter("replies", "Replies by how they ended.", "operation", "finish")
        self._prompt = counter("prompt_tokens", "Tokens of prompts, by where their KV came from.", "source")
        self._output = counter("output_tokens", "Tokens generated, by how.", "source")
        self._model = gauge("model_info", "Always 1; says what is served.", "model", "device", "precision")

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"tenuto_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"tenuto_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"tenuto_{name}", text, labels, registry=self.registry, buckets=buckets)

    def served(self, info: ModelInfo) -> None:
        self._model.labels(info.name, info.device, info.precision).set(1)

    def opened(self) -> None:
        self._open.inc()

    def ended(self, record: RequestRecord, now: float) -> None:
        """Everything there is to count of a request."""
        self._open.dec()
        route = record.route or _OTHER
        method = record.method if record.method in _METHODS else _OTHER
        self._requests.labels(method, route, str(record.status if record.status is not None else 499)).inc()
        self._duration.labels(route).observe(now - record.arrived_s)
        if record.error is not None:
            self._errors.labels(record.error).inc()
        for work in record.works:
            self._add(work, record)

    def _add(self, work: Work, record: RequestRecord) -> None:
        operation = work.operation
        if work.first_token_s is not None:
            start_s = record.arrived_s if work is record.work else work.start_s
            self._ttft.labels(operation).observe(work.first_token_s - start_s)
        if work.queued_s is not None:
            self._queued.labels(operation).observe(work.queued_s)
        for seconds in work.token_times_s:
            self._tpot.labels(operation).observe(seconds)
        for reason in work.reasons or (FAILED if work.error is not None else CANCELLED,):
            self._replies.labels(operation, reason).inc()
        self._prompt.labels("held").inc(work.num_held)
        self._prompt.labels("shared").inc(work.num_shared)
        self._prompt.labels("computed").inc(work.num_computed)
        self._output.labels("forced").inc(work.num_forced)
        self._output.labels("accepted").inc(work.num_accepted)
        self._output.labels("sampled").inc(work.num_generated - work.num_forced - work.num_accepted)

    def exposition(self, counters: EngineCounters | None) -> bytes:
        """All metrics in Prometheus' text format.

        Args:
            counters: the engine's, as of now; None: it has stopped, or there is none.
        """
        self._engine.counters = counters
        return generate_latest(self.registry)
