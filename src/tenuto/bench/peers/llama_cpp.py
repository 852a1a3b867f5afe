"""llama.cpp's own server, from the xllamacpp wheel."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process

import tenuto.bench.peers.guests
from tenuto.bench.driver import Progress, RunClock, drive
from tenuto.bench.peers.completion_agents import CompletionAgents, Dialect, Piece, http_client
from tenuto.bench.peers.environment import PeerEnvironment, PeerUnavailable, process, server_blamed
from tenuto.bench.peers.lines import json_objects
from tenuto.bench.peers.model_files import GGUFKind, write_gguf
from tenuto.bench.peers.peer import Place, longest, num_cores
from tenuto.bench.records import RunRecord
from tenuto.bench.workload import TokenWorkload
from tenuto.clock import Clock
from tenuto.ids import TokenId

GUESTS = Path(tenuto.bench.peers.guests.__file__).parent
_START_S = 300
_SLACK = 64  # tokens of a slot beyond the longest session


class LlamaCpp:
    """Implements `Peer`.

    Its server, when it streams, tells no ids of tokens that end inside a character: they come as text only, with the
    token that ends the character. The history could then not be continued with the ids that it holds KV of. So it may
    generate only tokens that are whole characters; it generates as many.
    """

    def __init__(self, place: Place, kind: GGUFKind, clock: Clock) -> None:
        self._place = place
        self._kind = kind
        self._clock = clock
        self._environment = PeerEnvironment(place.folder / "llama.cpp", ["xllamacpp"], place.pip_flags)
        self._model = place.models / f"{kind}.gguf"

    @property
    def name(self) -> str:
        return f"llama.cpp {self._kind}"

    def prepare(self) -> None:
        self._environment.install()
        if not self._model.exists():
            self._model.parent.mkdir(parents=True, exist_ok=True)
            write_gguf(self._place.model, self._model, self._kind)

    async def run(self, workload: TokenWorkload, progress: Progress | None = None) -> RunRecord:
        settings, reasons = self._settings(workload)
        job = self._environment.folder / "job.json"
        job.write_text(json.dumps({"model": str(self._model), "settings": settings}), encoding="utf-8")
        log = self._environment.folder / "server.log"
        command = [str(self._environment.python), str(GUESTS / "llama_server.py"), str(job)]
        async with process(command, log, {}) as server:
            started = await first_object(server, log, _START_S)
            async with server_blamed(server, log), http_client() as http:
                dialect = dialect_without(self._place.partial_ids)
                agents = CompletionAgents(http, started["url"], dialect, workload, RunClock(self._clock))
                await agents.warm_up()
                turns = await drive(agents, workload.shape, at_once=True, progress=progress)
        return RunRecord(
            system=self.name,
            mode="server",
            settings={
                **{k: str(v) for k, v in settings.items()},
                "logit_bias": f"{len(self._place.partial_ids)} tokens excluded",
                **started["versions"],
            },
            agents=workload.shape.agents,
            turns=turns,
            wall_s=max(turn.end_s for turn in turns),
            reasons={**reasons, "logit_bias": "its stream tells no ids of tokens that are parts of characters"},
        )

    def _settings(self, workload: TokenWorkload) -> tuple[dict[str, Any], dict[str, str]]:
        """Parameters by llama.cpp's names, and why."""
        agents, cores = workload.shape.agents, num_cores()
        context = agents * (longest(workload) + _SLACK)
        chosen: dict[str, tuple[Any, str]] = {
            "n_parallel": (agents, "a slot for each agent, so that none loses its KV to another"),
            "n_ctx": (context, "shared evenly by the slots, each with room for the longest session"),
            "cpuparams.n_threads": (cores, "one thread a core, as its documentation advises"),
            "cpuparams_batch.n_threads": (cores, "the same for prompts"),
            "cont_batching": (True, "sequences join and leave a batch at any step"),
            "cache_prompt": (True, "a slot keeps the KV of its last prompt; each agent asks for its own slot"),
            "flash_attn_type": ("LLAMA_FLASH_ATTN_TYPE_AUTO", "its default"),
            "cache_ram_mib": (0, "slots keep their KV; copies of it in host memory would only cost time"),
        }
        return {name: value for name, (value, _) in chosen.items()}, {name: why for name, (_, why) in chosen.items()}


async def first_object(server: Process, log: Path, timeout_s: float) -> dict[str, Any]:
    """What a server says when it is ready. Raises PeerUnavailable if it says nothing in time, or ends."""
    with anyio.move_on_after(timeout_s):
        async for value in json_objects(server, log):
            return value
        raise PeerUnavailable(f"it ended before it was ready; see {log}")
    raise PeerUnavailable(f"it was not ready after {timeout_s:.0f} s; see {log}")


def dialect_without(excluded: Sequence[int]) -> Dialect:
    """Args:
    excluded: ids that it may not generate.
    """
    biases = [[token, False] for token in excluded]

    def body(agent: int, ids: Sequence[TokenId], num_tokens: int) -> dict[str, Any]:
        return {
            "prompt": list(ids),
            "n_predict": num_tokens,
            "id_slot": agent,
            "cache_prompt": True,
            "ignore_eos": True,
            "logit_bias": biases,
            "temperature": 0,
            "samplers": ["temperature"],  # greedy: nothing else is computed for a choice
            "return_tokens": True,
            "stream": True,
        }

    return Dialect("/completion", body, _read)


def _read(event: dict[str, Any]) -> Piece:
    if not event.get("stop"):
        return Piece(event.get("tokens") or ())
    cached = (event.get("timings") or {}).get("cache_n")
    return Piece((), event.get("tokens_evaluated"), cached if isinstance(cached, int) else None)
