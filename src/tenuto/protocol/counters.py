"""What an engine counts, as plain values for metrics."""

from __future__ import annotations

import msgspec

NUM_STEP_SIZES = 14  # the last stands for everything above 2^12


class StepSizes(msgspec.Struct, frozen=True, kw_only=True):
    """How many steps were of which size: `counts[i]` those above 2^(i-1) and at most 2^i, the last one all above."""

    counts: tuple[int, ...] = (0,) * NUM_STEP_SIZES
    total: int = 0  # sum of all sizes


class EngineLevels(msgspec.Struct, frozen=True, kw_only=True):
    """How things stand at this moment. num_blocks = free + cached + owned + shared."""

    num_waiting: int = 0  # requests
    num_running: int = 0
    num_sessions: int = 0  # open ones
    num_suspended: int = 0  # of these, waiting, e.g. for a tool
    num_suspended_tokens: int = 0  # KV that those hold
    num_blocks: int = 0
    num_blocks_free: int = 0  # those that the step in flight still keeps from being used are among them
    num_blocks_cached: int = 0  # nobody holds them, but their tokens can still be found
    num_blocks_owned: int = 0  # held by one session
    num_blocks_shared: int = 0  # held by several


class EngineCounters(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since the engine began."""

    num_steps: int = 0
    num_computed_tokens: int = 0
    num_recomputed_tokens: int = 0  # of these, again after preemption
    num_decode_slices: int = 0  # parts of steps in which a request got at least one token from the model
    num_sampled_tokens: int = 0  # right drafts among them
    num_forced_tokens: int = 0
    num_drafted_tokens: int = 0  # computed as guesses; num_computed_tokens counts only those that were right
    num_accepted_tokens: int = 0  # sampled ids among these that were right: each spared a decode
    num_shared_tokens: int = 0  # found in the prefix cache
    num_preemptions: int = 0
    num_preempted_for_others: int = 0  # of these, because a better-ranked request needed the blocks
    num_discards: int = 0  # sessions that lost their KV while idle or waiting
    num_discarded_idle: int = 0  # of these, nobody computed for them
    num_evictions: int = 0  # cached blocks recycled
    num_copies: int = 0  # blocks copied on write
    num_failed_steps: int = 0
    step_requests: StepSizes = StepSizes()  # requests that took part
    step_tokens: StepSizes = StepSizes()  # tokens computed, guesses among them
    levels: EngineLevels = EngineLevels()  # filled in by `EngineClient.counters`
