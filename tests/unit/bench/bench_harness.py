"""Workloads and runs small enough to reckon by hand."""

from __future__ import annotations

from collections.abc import Sequence

from tenuto.bench.driver import Progress, RunClock, drive
from tenuto.bench.records import TurnRecord
from tenuto.bench.shape import Shape
from tenuto.bench.token_agents import TokenAgents
from tenuto.bench.workload import TokenWorkload, encode_texts, make_texts
from tenuto.clock import VirtualClock, run_virtual
from tenuto.ids import TokenId
from tenuto.testing.scripted_engine import ScriptedEngine

SMALL = Shape(agents=3, turns=4, prompt_words=40, result_words=10, output_tokens=5, tool_s=0.5, seed=7)


def letters(text: str) -> list[TokenId]:
    """A tokenizer: one id for each character."""
    return [TokenId(ord(c) % 5000 + 3) for c in text]


def small_workload(shape: Shape = SMALL) -> TokenWorkload:
    return encode_texts(make_texts(shape), letters)


def following(tokens: Sequence[TokenId]) -> TokenId:
    """What the scripted engine says: depends on all it was given."""
    return TokenId((sum(tokens) + len(tokens)) % 97)


def run_on(
    engine: ScriptedEngine, workload: TokenWorkload, *, mode: str, progress: Progress | None = None
) -> tuple[tuple[TurnRecord, ...], TokenAgents]:
    """In virtual time, so that only tools take any."""

    async def main() -> tuple[tuple[TurnRecord, ...], TokenAgents]:
        agents = TokenAgents(engine, workload, RunClock(VirtualClock()), hold=mode != "reprefill")
        turns = await drive(agents, workload.shape, at_once=mode == "held", progress=progress)
        return turns, agents

    return run_virtual(main())
