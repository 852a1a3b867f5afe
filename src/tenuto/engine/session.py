"""A session: the tokens an agent has seen and produced, and the KV of the computed part."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from tenuto.engine.draft_policy import UNKNOWN, Estimates
from tenuto.engine.drafts import SuffixIndex
from tenuto.engine.kv_cache import BlockTable
from tenuto.ids import SessionId, TokenId
from tenuto.protocol.hints import RunHints

if TYPE_CHECKING:
    from tenuto.engine.request import Request

Phase: TypeAlias = Literal["idle", "waiting", "running", "suspended"]


@dataclass(slots=True, eq=False)
class Service:
    """Tokens computed for one run; shared by its sessions, read by the policy."""

    tokens: int = 0


@dataclass(slots=True, eq=False)
class Session:
    """Token truth: the ids are never tokenised again. The last sampled id has no KV yet."""

    id: SessionId
    serial: int
    hints: RunHints
    table: BlockTable
    service: Service
    tokens: list[TokenId] = field(default_factory=list)
    request: Request | None = None  # the one it computes for
    index: SuffixIndex | None = None  # of its tokens, while drafts are made from them
    estimates: Estimates = UNKNOWN  # how often such drafts are right; kept from turn to turn
    last_used_s: float = 0.0
    expected_end_s: float | None = None  # of a suspension
    total_computed_tokens: int = 0
    total_reused_tokens: int = 0
    total_drafted_tokens: int = 0
    total_accepted_tokens: int = 0
    waiting_s: float = 0.0
    running_s: float = 0.0
    suspended_s: float = 0.0
    phase: Phase = "idle"
    phase_since_s: float = 0.0

    def enter(self, phase: Phase, now: float) -> None:
        """Begin another phase, adding the time spent in this one to its sum."""
        elapsed = now - self.phase_since_s
        if self.phase == "waiting":
            self.waiting_s += elapsed
        elif self.phase == "running":
            self.running_s += elapsed
        elif self.phase == "suspended":
            self.suspended_s += elapsed
        self.phase = phase
        self.phase_since_s = now

    def touch(self, now: float) -> None:
        self.last_used_s = now
        self.expected_end_s = None


class ServiceLedger:
    """The service each run attained. Bounded: of runs unheard of for long, the count begins anew."""

    def __init__(self, max_runs: int = 4096) -> None:
        self._max_runs = max_runs
        self._runs: dict[tuple[str, str], Service] = {}  # by tenant and run, least recently used first

    def of(self, hints: RunHints) -> Service:
        """The counter of the hints' run, or a new one that belongs to no run."""
        if hints.run is None:
            return Service()
        run = hints.tenant, hints.run
        service = self._runs.pop(run, None) or Service()
        self._runs[run] = service
        if len(self._runs) > self._max_runs:
            del self._runs[next(iter(self._runs))]
        return service
