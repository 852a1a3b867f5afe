"""What is known of one request when it ends: the source of its metrics, its log line and its span."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tenuto.ids import RequestId
from tenuto.protocol.chat import ChatUsage
from tenuto.protocol.engine import GenerateUsage

if TYPE_CHECKING:
    from opentelemetry.trace import Span

Operation: TypeAlias = Literal["chat", "text_completion", "generate", "embeddings", "rerank"]
CANCELLED = "cancelled"
FAILED = "error"


@dataclass(slots=True)
class Work:
    """One call on the model or the engine, as far as it has come."""

    operation: Operation
    start_s: float
    first_token_s: float | None = None  # clock time
    end_s: float | None = None
    run: str | None = None
    session: str | None = None
    num_prompt: int = 0
    num_held: int = 0
    num_shared: int = 0
    num_computed: int = 0
    num_generated: int = 0
    num_forced: int = 0
    num_accepted: int = 0
    queued_s: float | None = None
    token_times_s: list[float] = field(default_factory=list)  # of each reply: seconds a token after the first
    reasons: list[str] = field(default_factory=list)  # why each reply ended
    reuse_break: str | None = None
    error: str | None = None

    def add(self, usage: ChatUsage | GenerateUsage) -> None:
        """The tokens of one reply."""
        self.num_prompt += usage.num_prompt
        self.num_held += usage.num_held
        self.num_shared += usage.num_shared
        self.num_computed += usage.num_computed
        self.num_generated += usage.num_generated
        self.num_forced += usage.num_forced
        self.num_accepted += usage.num_accepted


@dataclass(slots=True)
class RequestRecord:
    """One HTTP request. The route is the template, e.g. `/v1/models/{model}`, never what a client wrote."""

    request_id: RequestId
    method: str
    arrived_s: float  # clock time
    quiet: bool = False  # asked by a machine, again and again
    route: str | None = None  # None: no route of ours
    status: int | None = None  # None: nothing was answered, since the client had gone
    tenant: str = ""
    error: str | None = None  # kind of the error that was answered, or that broke a stream off
    works: list[Work] = field(default_factory=list)
    span: Span | None = None  # None: not traced

    def __repr__(self) -> str:
        return f"RequestRecord({self.request_id})"

    @property
    def work(self) -> Work | None:
        """The first call on the model, which gives the request its character."""
        return self.works[0] if self.works else None

    def total(self, name: str) -> int:
        """Sum of a count over all calls."""
        return sum(getattr(work, name) for work in self.works)

    def ttft_s(self) -> float | None:
        """Arrival to the first token of the first call."""
        work = self.work
        return None if work is None or work.first_token_s is None else work.first_token_s - self.arrived_s

    def fields(self, now: float) -> dict[str, Any]:
        """The log line: what is known, nothing that a user wrote."""
        work = self.work
        known: dict[str, Any] = {
            "request_id": self.request_id,
            "method": self.method,
            "route": self.route,
            "status": self.status if self.status is not None else 499,
            "tenant": self.tenant or None,
            "total_s": round(now - self.arrived_s, 4),
            "error": self.error,
        }
        if work is not None:
            ttft_s = self.ttft_s()
            num_prompt = self.total("num_prompt")  # 0: of replies that broke off
            num_cached = self.total("num_held") + self.total("num_shared")
            known |= {
                "operation": work.operation,
                "run": work.run,
                "session": work.session,
                "prompt_tokens": num_prompt or None,
                "cached_tokens": num_cached if num_prompt else None,
                "output_tokens": self.total("num_generated"),
                "ttft_s": None if ttft_s is None else round(ttft_s, 4),
                "queued_s": None if work.queued_s is None else round(work.queued_s, 4),
                "finish": ",".join(dict.fromkeys(reason for one in self.works for reason in one.reasons)) or None,
                "reuse_break": work.reuse_break,
            }
        return {name: value for name, value in known.items() if value is not None}


_CURRENT: ContextVar[RequestRecord | None] = ContextVar("tenuto_request", default=None)


def current_record() -> RequestRecord | None:
    """The request that this task works for, if any."""
    return _CURRENT.get()


def set_current_record(record: RequestRecord) -> None:
    """For this task, and all that it starts from now on."""
    _CURRENT.set(record)
