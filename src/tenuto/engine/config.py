"""What an engine is built with: sizes and limits, checked once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tenuto.errors import ConfigError

PolicyName: TypeAlias = Literal["fcfs", "agent"]
Speculation: TypeAlias = Literal["off", "suffix"]

_POSITIVE = (
    "num_blocks",
    "block_size",
    "vocab_size",
    "max_model_tokens",
    "max_batch_tokens",
    "max_chunk_tokens",
    "max_running",
    "max_waiting",
    "max_draft_tokens",
)


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """Sizes and limits of one engine. Raises ConfigError when they contradict each other."""

    num_blocks: int  # KV blocks in the pool
    block_size: int = 16  # token slots per block; the device chooses it
    vocab_size: int  # ids are 0 .. vocab_size - 1
    max_model_tokens: int  # context length
    max_batch_tokens: int = 192  # tokens computed in one step, all requests together; see docs/configuration.md
    max_chunk_tokens: int = 192  # of these, at most so many for one request
    max_running: int = 64  # requests that take part in steps
    max_waiting: int = 1024  # requests queued; one more is refused with QueueFull
    max_bypasses: int = 16  # younger requests that may start before one that does not fit yet
    policy: PolicyName = "agent"
    patience_s: float = 10.0  # each such time waited counts as one level of priority (agent policy)
    prefix_cache: bool = True
    speculation: Speculation = "off"  # suffix: drafts from the session's own tokens
    max_draft_tokens: int = 16  # drafts of one request in one step; budget and free blocks may allow fewer
    step_rows: float = 12.0  # rows that take as long to compute as the weights take to stream
    kv_type: str = "fp32"
    kv_bytes_per_token: int = 0

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.max_running > self.max_batch_tokens:
            # Every running request computes at least one token in every step.
            raise ConfigError(f"max_running ({self.max_running}) exceeds max_batch_tokens ({self.max_batch_tokens})")
        if self.max_bypasses < 0:
            raise ConfigError(f"max_bypasses is {self.max_bypasses}; it must not be negative")
        if not self.patience_s > 0:
            raise ConfigError(f"patience_s is {self.patience_s}; it must be positive")
        if not self.step_rows > 0:
            raise ConfigError(f"step_rows is {self.step_rows}; it must be positive")
        if self.speculation not in ("off", "suffix"):
            raise ConfigError(f"speculation is {self.speculation!r}; it must be 'off' or 'suffix'")
        if self.policy not in ("fcfs", "agent"):
            raise ConfigError(f"policy is {self.policy!r}; it must be 'fcfs' or 'agent'")

    @property
    def pool_tokens(self) -> int:
        """Token slots in the whole pool."""
        return self.num_blocks * self.block_size

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens` tokens."""
        return -(-num_tokens // self.block_size)
