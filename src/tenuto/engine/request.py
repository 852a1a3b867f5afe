"""A request: one append, generate or embed on one session, from the door to its last delta."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tenuto.engine.penalties import TokenCounter
from tenuto.engine.session import Service, Session
from tenuto.ids import RequestId, TokenId
from tenuto.protocol.engine import GenerateParams, GenerateUsage, Pooling
from tenuto.protocol.grammar import TokenGrammar

RequestState: TypeAlias = Literal["waiting", "running", "finished"]


@dataclass(slots=True, eq=False)
class Request:
    """State of a request. The tokens are the session's; here is what is wanted and what it has cost."""

    id: RequestId
    serial: int
    session: Session
    params: GenerateParams | None  # None: an append or an embed
    service: Service
    priority: int
    arrival_s: float
    max_tokens: int  # new ids at most; 0 for an append
    num_prompt: int  # known tokens when the first new one was chosen
    grammar: TokenGrammar | None = None
    forced_ahead: tuple[TokenId, ...] = ()  # ids that the grammar forces next; more than are added at once
    counter: TokenCounter | None = None  # where sampling has penalties
    pooling: Pooling | None = None  # of an embed
    state_sum: NDArray[np.float64] | None = None  # [hidden], of the tokens computed so far that are pooled
    state: RequestState = "waiting"
    attempt: int = 0
    num_bypasses: int = 0  # younger requests that started while this one did not fit
    num_held: int = 0
    num_shared: int = 0
    num_reached: int = 0  # tokens that had KV at some time during this call
    num_recomputed: int = 0
    num_generated: int = 0
    num_forced: int = 0
    num_accepted: int = 0
    num_steps: int = 0
    started_s: float | None = None
    first_token_s: float | None = None

    @property
    def attained_tokens(self) -> int:
        return self.service.tokens

    @property
    def is_resident(self) -> bool:
        return self.session.table.num_computed > 0

    @property
    def num_uncomputed(self) -> int:
        """Known tokens without KV."""
        return len(self.session.tokens) - self.session.table.num_computed

    @property
    def num_remaining(self) -> int:
        """Ids that may still be generated."""
        return self.max_tokens - self.num_generated

    @property
    def reads_cache(self) -> bool:
        """Whether KV found in the prefix cache helps: not where the states of every token are wanted."""
        return self.pooling in (None, "last")

    def start(self, now: float) -> None:
        """Enter the steps, for the first time or again, with the KV the session has now."""
        computed = self.session.table.num_computed
        assert self.reads_cache or not computed, "every state is wanted, but some were computed before"
        self.state_sum = None
        if self.started_s is None:
            self.started_s = now
            self.num_held = min(self.num_held, computed)
            # A match may reach beyond the prompt, into ids that the grammar forced; usage speaks of the prompt.
            self.num_shared = max(0, min(computed, self.num_prompt) - self.num_held)
            self.session.total_reused_tokens += computed
            self.num_reached = computed  # what was lost while it waited is computed by this call for the first time
        self.num_reached = max(self.num_reached, computed)
        self.state = "running"
        self.session.enter("running", now)

    def usage(self, now: float) -> GenerateUsage:
        started = now if self.started_s is None else self.started_s
        first = now if self.first_token_s is None else self.first_token_s
        return GenerateUsage(
            num_prompt=self.num_prompt,
            num_held=self.num_held,
            num_shared=self.num_shared,
            num_computed=self.num_prompt - self.num_held - self.num_shared,
            num_recomputed=self.num_recomputed,
            num_generated=self.num_generated,
            num_forced=self.num_forced,
            num_accepted=self.num_accepted,
            num_steps=self.num_steps,
            queued_s=started - self.arrival_s,
            ttft_s=first - self.arrival_s,
            total_s=now - self.arrival_s,
        )
