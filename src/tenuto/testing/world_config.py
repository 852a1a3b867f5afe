"""What kind of world a seed draws: engine, population and faults."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tenuto.engine.config import EngineConfig

VOCAB_SIZE = 260
"""256 bytes, and a few control ids for the toy model."""
MAX_BLOCKS = 96
"""More would only make the checks slower."""


@dataclass(frozen=True, kw_only=True)
class WorldConfig:
    """One era of a world: an engine and who uses it. Chances are per call, delta or step, between 0 and 1."""

    engine: EngineConfig
    num_session_actors: int
    num_agents: int
    max_sessions: int  # open at once, for one session actor
    step_s: float = 0.01  # virtual seconds a step takes, and per token:
    token_s: float = 0.0002
    pause_s: float = 0.05  # mean pause of a session actor between two calls
    step_fault: float = 0.0  # the executor fails
    reload: float = 0.0  # the weights are loaded anew, per call of a session actor
    interrupt: float = 0.0  # a call is cancelled, left or its session closed
    probe: float = 0.0  # another call on a busy session, per delta
    refused: float = 0.0  # a call that must be refused
    shutdown: bool = False  # the storm ends with the engine's stop instead of the calm
    apart: bool = False  # everybody calls the engine through a boundary; nobody then asks what a busy session says


def draw_config(rng: random.Random) -> WorldConfig:
    """A random era, from cramped to roomy."""
    block_size = rng.choice((1, 2, 4, 4, 8, 16))
    pool_tokens = rng.choice((48, 80, 128, 200, 400))
    max_batch_tokens = rng.choice((8, 16, 32, 64))
    engine = EngineConfig(
        num_blocks=min(MAX_BLOCKS, pool_tokens // block_size + rng.randint(0, 1)),
        block_size=block_size,
        vocab_size=VOCAB_SIZE,
        max_model_tokens=rng.choice((128, 200, 320)),
        max_batch_tokens=max_batch_tokens,
        max_chunk_tokens=rng.choice((1, 4, 16, max_batch_tokens)),
        max_running=rng.randint(1, min(8, max_batch_tokens)),
        max_waiting=rng.choice((1, 3, 8, 64, 64)),
        max_bypasses=rng.choice((0, 2, 16)),
        policy=rng.choice(("fcfs", "agent")),
        patience_s=rng.choice((0.05, 1.0, 10.0)),
        prefix_cache=rng.random() < 0.75,
        kv_bytes_per_token=8,
        speculation=rng.choice(("off", "suffix", "suffix", "suffix")),
        max_draft_tokens=rng.choice((1, 3, 8)),
        step_rows=rng.choice((4.0, 16.0, 1000.0)),
    )
    return WorldConfig(
        engine=engine,
        num_session_actors=rng.randint(1, 6),
        num_agents=rng.randint(0, 3),
        max_sessions=rng.randint(1, 4),
        pause_s=rng.choice((0.0, 0.02, 0.2)),
        step_fault=rng.choice((0.0, 0.002, 0.02)),
        reload=rng.choice((0.0, 0.0, 0.01)),
        interrupt=rng.choice((0.0, 0.15, 0.4)),
        probe=rng.choice((0.0, 0.05)),
        refused=rng.choice((0.0, 0.1)),
        shutdown=rng.random() < 0.1,
    )
