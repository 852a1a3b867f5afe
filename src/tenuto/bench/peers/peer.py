"""What every peer is: a name, something to prepare, and runs of a workload."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tenuto.bench.driver import Progress
from tenuto.bench.records import RunRecord
from tenuto.bench.workload import TokenWorkload


@dataclass(frozen=True)
class Place:
    """Where peers live, and what they are given."""

    folder: Path  # environments and converted models
    model: Path  # the model's file or directory
    fingerprint: str  # of the model
    pip_flags: tuple[str, ...] = ()
    partial_ids: tuple[int, ...] = ()  # whose bytes are no whole characters: see `LlamaCpp`

    @property
    def models(self) -> Path:
        """Converted models; another model has another folder."""
        return self.folder / "models" / self.fingerprint[:16]


class Peer(Protocol):
    """One engine with one setting of the model."""

    @property
    def name(self) -> str: ...

    def prepare(self) -> None:
        """Install it and convert the model; again at no cost. Raises PeerUnavailable, UnsupportedModel."""
        ...

    async def run(self, workload: TokenWorkload, progress: Progress | None = None) -> RunRecord:
        """All agents at once, in a process of its own that is gone afterwards.

        Raises PeerUnavailable; TenutoError if it counted tokens otherwise.
        """
        ...


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def longest(workload: TokenWorkload) -> int:
    """Tokens of the longest session, at its end."""
    return max(workload.num_tokens(agent) for agent in range(workload.shape.agents))
