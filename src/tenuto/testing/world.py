"""A whole Tenuto in one process and in virtual time, driven by one seed.

The scheduler, KV cache, policy, engine core, engine client and agent loop are the production ones. In place of the
model stands the fake executor, whose every token depends on all the KV it reads through the block tables, so that
an aliased, lost, stale or too early freed block changes the output. Actors know from a naive model of token lists
what must come out, whatever happens on the way: cancelling, preemption, a full pool, truncation, forks, failed
steps, new weights, tools that are slow, fail or hang.

    python -m tenuto.testing.world --seed 7 --steps 20000
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import logging
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tenuto.clock import VirtualClock, run_virtual
from tenuto.engine import ClientOptions, EngineConfig, LocalEngineClient
from tenuto.protocol.engine import EngineInfo
from tenuto.testing.fake_executor import FakeExecutor
from tenuto.testing.toy_grammar import ToyGrammarCompiler
from tenuto.testing.world_agents import AgentActor, toy_tools
from tenuto.testing.world_config import WorldConfig, draw_config
from tenuto.testing.world_executor import FaultyExecutor
from tenuto.testing.world_history import History, Violation
from tenuto.testing.world_sessions import SessionActor
from tenuto.testing.world_stage import Stage
from tenuto.testing.world_watch import WatchedEngine

ERA_STEPS = 800
"""Steps until the calm; then everybody finishes, and the next era draws another engine and other actors."""
TICK_S = 0.25
_COUNTED = (
    "preemptions",
    "discards",
    "evictions",
    "copies",
    "failed_steps",
    "shared_tokens",
    "forced_tokens",
    "drafted_tokens",
    "accepted_tokens",
)
MAX_STALL_S = 600.0  # nobody sleeps that long


@dataclass
class WorldSummary:
    """What happened. Equal digests mean the same events in the same order."""

    seed: int
    num_eras: int = 0
    num_steps: int = 0  # of the engine
    num_events: int = 0
    num_computed_tokens: int = 0
    virtual_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)  # outcomes, faults and what the engine did, by name
    digest: str = ""


class World:
    """A seeded simulation; see the module's docstring.

    Args:
        seed: decides everything.
        config: one engine and population for all eras; by default each era draws its own.
        apart: the engine is behind a boundary, as in a process of its own.
        trace: called with a line for each event.
    """

    def __init__(
        self,
        seed: int,
        config: WorldConfig | None = None,
        *,
        apart: bool = False,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self.seed = seed
        self._config = config
        self._apart = apart
        self._trace = trace
        self._tools = toy_tools(VirtualClock())

    def run(self, num_steps: int, *, first_era: int = 0) -> WorldSummary:
        """Live through at least so many engine steps. Raises Violation, which says how to replay it."""
        summary = WorldSummary(self.seed)
        digest = hashlib.blake2b(digest_size=16)
        while summary.num_steps < num_steps:
            era = first_era + summary.num_eras
            history = History(self._trace)
            limit = min(ERA_STEPS, num_steps - summary.num_steps)
            try:
                run_virtual(self._live_through(era, limit, history, summary))
            except Exception as error:  # noqa: BLE001 - whatever breaks a world is a finding
                cause = history.violation if history.violation is not None else error
                raise Violation(self._report(cause, era, limit, history)) from cause
            digest.update(history.digest.encode())
            summary.num_eras += 1
            summary.num_events += history.num_events
            summary.counts += history.counts
        summary.digest = digest.hexdigest()
        return summary

    async def _live_through(self, era: int, max_steps: int, history: History, summary: WorldSummary) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: _note(history, context))
        rng = random.Random(f"world {self.seed} era {era}")
        config = self._config if self._config is not None else draw_config(rng)
        config = replace(config, apart=self._apart or config.apart)
        stage, executor = _build(config, rng, history)
        async with stage.running():
            actors: list[SessionActor | AgentActor] = [
                *(SessionActor(f"s{i}", _fork(rng), stage) for i in range(config.num_session_actors)),
                *(AgentActor(f"a{i}", _fork(rng), stage, self._tools) for i in range(config.num_agents)),
            ]
            await _attend(stage, [actor.live() for actor in actors], max_steps)
            if not stage.stopped:
                executor.fault, stage.calm = 0.0, True
                calm_steps = 20 * config.engine.max_model_tokens * len(actors)
                await _attend(stage, [actor.finish() for actor in actors], stage.engine.num_steps + calm_steps)
                await stage.clock.sleep(TICK_S)  # a step of a cancelled request may still be in flight
                stage.engine.check_quiet()
        if history.violation is not None:
            raise history.violation
        _account(stage, summary)

    def _report(self, cause: BaseException, era: int, num_steps: int, history: History) -> str:
        command = f"python -m tenuto.testing.world --seed {self.seed} --era {era} --steps {num_steps} --trace"
        command += " --apart" if self._apart else ""
        return (
            f"{type(cause).__name__}: {cause}\n"
            f"in era {era} of seed {self.seed}, after {history.num_events} events; replay it with\n  {command}"
        )


async def _attend(stage: Stage, lives: Sequence[Coroutine[Any, Any, None]], max_steps: int) -> None:
    """Let the actors live. In the storm the calm comes after `max_steps`; in the calm they must be done by then."""
    history, engine = stage.history, stage.engine
    everybody = asyncio.gather(*lives)
    num_steps, since_s = engine.num_steps, stage.clock.now()
    while not everybody.done():
        await asyncio.wait([everybody], timeout=TICK_S)
        if history.violation is not None:
            everybody.cancel()
            raise history.violation
        if engine.num_steps != num_steps:
            num_steps, since_s = engine.num_steps, stage.clock.now()
        history.expect(stage.clock.now() - since_s < MAX_STALL_S, "no step for a long time: a deadlock")
        if num_steps >= max_steps:
            if stage.storm and stage.config.shutdown:
                await stage.stop()
            stage.storm = False
            history.expect(not stage.calm, "the calm does not end: somebody is never served")
    try:
        await everybody
    except Exception as error:
        history.violate(error)  # before the engine is stopped, which the others would take for the fault
        raise


def _note(history: History, context: dict[str, Any]) -> None:
    """An exception that nobody received. After the first violation they are its consequences."""
    history.violate(context.get("exception") or AssertionError(context["message"]))


def _build(config: WorldConfig, rng: random.Random, history: History) -> tuple[Stage, FaultyExecutor]:
    sizes = config.engine
    engine = WatchedEngine(sizes, history)
    fake = FakeExecutor(sizes.num_blocks, sizes.block_size, sizes.vocab_size, free_blocks=engine.free_blocks)
    executor = FaultyExecutor(fake, _fork(rng), config.step_fault, history)
    compiler = ToyGrammarCompiler(sizes.vocab_size)
    clock = VirtualClock()
    options = ClientOptions(inline=True, step_cost=lambda batch: config.step_s + config.token_s * batch.num_tokens)
    client = LocalEngineClient(engine, executor, clock, _info(sizes), compiler=compiler, options=options)
    return Stage(config, clock, engine, client, fake, compiler, history), executor


def _info(config: EngineConfig) -> EngineInfo:
    return EngineInfo(
        model="toy",
        fingerprint="toy",
        vocab_size=config.vocab_size,
        max_model_tokens=config.max_model_tokens,
        block_size=config.block_size,
        num_blocks=config.num_blocks,
        kv_bytes_per_token=config.kv_bytes_per_token,
        device="fake",
        precision="exact",
        row_invariant=True,
    )


def _fork(rng: random.Random) -> random.Random:
    return random.Random(rng.getrandbits(64))


def _account(stage: Stage, summary: WorldSummary) -> None:
    counters = stage.engine.counters()
    summary.num_steps += stage.engine.num_steps
    summary.num_computed_tokens += counters.num_computed_tokens
    summary.virtual_s += stage.clock.now()
    for name in _COUNTED:
        summary.counts[f"engine: {name}"] += getattr(counters, f"num_{name}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run seeds from the command line; 1 if one of them fails."""
    parser = argparse.ArgumentParser(prog="python -m tenuto.testing.world", description="Simulate Tenuto from a seed.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, counting up from --seed")
    parser.add_argument("--steps", type=int, default=20_000, help="engine steps for each seed")
    parser.add_argument("--era", type=int, default=0, help="begin with this era of the seed")
    parser.add_argument("--apart", action="store_true", help="the engine behind a boundary")
    parser.add_argument("--trace", action="store_true", help="print every event")
    options = parser.parse_args(arguments)
    failed = False
    for seed in range(options.seed, options.seed + options.seeds):
        world, start_s = World(seed, apart=options.apart, trace=print if options.trace else None), time.perf_counter()
        try:
            summary = world.run(options.steps, first_era=options.era)
        except Violation as violation:
            failed = True
            print(violation, file=sys.stderr, flush=True)
            continue
        speed = summary.num_steps / (time.perf_counter() - start_s)
        print(f"seed {seed}: {summary.num_steps} steps, {speed:.0f} steps/s, digest {summary.digest}", flush=True)
        if options.seeds == 1:
            print("\n".join(f"  {name}: {count}" for name, count in sorted(summary.counts.items())))
    return int(failed)


if __name__ == "__main__":
    logging.getLogger("tenuto").setLevel(logging.CRITICAL)  # tools that fail are meant to
    sys.exit(main())
