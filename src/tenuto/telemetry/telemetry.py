"""The one thing the server is handed: what happens is told here, and goes to metrics, traces and logs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import structlog

from tenuto.clock import Clock
from tenuto.errors import TenutoError
from tenuto.ids import RequestId
from tenuto.protocol.chat import ChatRequest, ChatUsage, ModelInfo
from tenuto.protocol.engine import GenerateUsage
from tenuto.protocol.hints import RunHints
from tenuto.protocol.messages import Message
from tenuto.telemetry.metrics import ServerMetrics
from tenuto.telemetry.record import Operation, RequestRecord, Work, current_record, set_current_record
from tenuto.telemetry.tracing import Tracing

_INTERNAL = "internal_error"  # the kind of an error that is none of ours

_log = structlog.get_logger("tenuto.server")


class Telemetry:
    """Args:
    tracing: None: no spans.
    """

    def __init__(self, clock: Clock, *, tracing: Tracing | None = None) -> None:
        self.metrics = ServerMetrics()
        self._clock = clock
        self._tracing = tracing
        self._model = ""

    def served(self, info: ModelInfo) -> None:
        """What the server serves."""
        self._model = info.name
        self.metrics.served(info)

    # Requests

    def begin(
        self, request_id: RequestId, method: str, headers: Iterable[tuple[bytes, bytes]], *, quiet: bool = False
    ) -> RequestRecord:
        """A request has arrived; from now on it is this task's. A quiet one has no span, and a line if it fails."""
        record = RequestRecord(request_id, method, self._clock.now(), quiet=quiet)
        set_current_record(record)
        structlog.contextvars.bind_contextvars(request_id=request_id)
        self.metrics.opened()
        if self._tracing is not None and not quiet:
            self._tracing.begin(record, headers)
        return record

    def end(self, record: RequestRecord) -> None:
        """The request is over: one line in the log."""
        now = self._clock.now()
        self.metrics.ended(record, now)
        if self._tracing is not None and record.span is not None:
            self._tracing.end(record, self._model)
        if not record.quiet or record.error is not None:
            _log.info("request", **record.fields(now))

    # Calls on the model

    @contextmanager
    def work(self, operation: Operation, hints: RunHints, session: str | None = None) -> Iterator[Work]:
        """A call on the model, for the request of this task; outside of any request it is counted nowhere."""
        work = Work(operation, self._clock.now(), run=hints.run, session=session)
        record = current_record()
        if record is not None:
            record.works.append(work)
            self._event("queued")
        try:
            yield work
        except Exception as error:
            self._failed(work, error.code if isinstance(error, TenutoError) else _INTERNAL)
            raise
        finally:
            work.end_s = self._clock.now()
            self._event("finished")

    def asked(self, request: ChatRequest) -> None:
        record = current_record()
        if self._tracing is not None and record is not None and record.span is not None:
            self._tracing.asked(record, request)

    def token(self, work: Work) -> None:
        """Something of a reply has come; the first is told of."""
        if work.first_token_s is None:
            work.first_token_s = self._clock.now()
            self._event("first_token")

    def replied(self, work: Work, usage: ChatUsage | GenerateUsage, reason: str, message: Message | None) -> None:
        """One of the call's replies is whole."""
        work.add(usage)
        work.reasons.append(reason)
        if work.queued_s is None:
            work.queued_s = usage.queued_s
        if isinstance(usage, ChatUsage):
            work.reuse_break = work.reuse_break or usage.reuse_break
        if usage.num_generated > 1:
            work.token_times_s.append(max(0.0, usage.total_s - usage.ttft_s) / (usage.num_generated - 1))
        record = current_record()
        if self._tracing is not None and record is not None and record.span is not None and message is not None:
            self._tracing.replied(record, message)

    def broken_off(self, usage: GenerateUsage) -> None:
        """One of the replies of this task's request is given up: its tokens were generated all the same."""
        record = current_record()
        if record is not None and record.works:
            record.works[-1].add(usage)

    def _failed(self, work: Work, kind: str) -> None:
        work.error = kind
        record = current_record()
        if record is not None:
            record.error = kind

    def _event(self, name: str) -> None:
        record = current_record()
        if self._tracing is not None and record is not None and record.span is not None:
            self._tracing.event(record, name)
