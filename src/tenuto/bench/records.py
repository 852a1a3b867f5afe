"""What was measured, turn by turn; plain values that a report is made of, whatever system ran."""

from __future__ import annotations

import msgspec


class TurnRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of one agent. Times are seconds since the run began; what a system does not tell is None."""

    agent: int
    turn: int
    num_in: int  # ids that the turn added
    num_context: int  # ids known when the first new one was chosen
    num_out: int
    start_s: float  # the request was made
    first_s: float  # the first new id came
    end_s: float  # the last came
    num_held: int | None = None  # of the context: KV held by the session
    num_shared: int | None = None  # of the context: KV found in the prefix cache
    num_computed: int | None = None  # of the context: computed by this turn
    num_forced: int | None = None  # of the new ids: forced by a grammar
    num_decode_steps: int | None = None  # engine steps that chose new ids for this turn
    ids: tuple[int, ...] = ()  # the new ids, where the system tells them

    @property
    def ttft_s(self) -> float:
        return self.first_s - self.start_s

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first; None for a single one."""
        return (self.end_s - self.first_s) / (self.num_out - 1) if self.num_out > 1 else None


class Speculation(msgspec.Struct, frozen=True, kw_only=True):
    """Ids that were guessed and verified beside others."""

    num_drafted: int
    num_accepted: int


class KVHeld(msgspec.Struct, frozen=True, kw_only=True):
    """KV at the end of the run, while all agents' sessions are still open."""

    kv_bytes: int  # of distinct blocks: what agents share is counted once
    num_tokens: int  # computed tokens of all sessions; what agents share is counted for each
    bytes_per_token: int
    separate_bf16_bytes: int  # what a bfloat16 cache for each agent alone would hold of the same tokens


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a workload."""

    system: str  # who ran it
    mode: str  # how, in a word
    settings: dict[str, str]  # how, in full
    agents: int
    turns: tuple[TurnRecord, ...]  # in the order of agents, then turns
    wall_s: float  # from the first request to the last id of all
    speculation: Speculation | None = None
    kv: KVHeld | None = None
    num_steps: int | None = None  # engine steps of the whole run
    reasons: dict[str, str] = {}  # why some settings are what they are
