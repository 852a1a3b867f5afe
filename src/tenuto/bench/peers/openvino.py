"""OpenVINO GenAI's continuous batching, in a process of its own."""

from __future__ import annotations

import json
import math
import shutil
from typing import Any

import msgspec

from tenuto.bench.driver import Progress
from tenuto.bench.peers.environment import PeerEnvironment, PeerUnavailable, process
from tenuto.bench.peers.lines import json_objects
from tenuto.bench.peers.llama_cpp import GUESTS
from tenuto.bench.peers.model_files import write_hf_directory
from tenuto.bench.peers.peer import Place, longest, num_cores
from tenuto.bench.records import RunRecord, TurnRecord
from tenuto.bench.workload import TokenWorkload
from tenuto.checkpoint import open_checkpoint

_PACKAGES = ("openvino-genai", "openvino-tokenizers", "optimum-intel", "nncf")
_CONVERT_S = 3600
_KV_GB_PER_TOKEN = 2e-5  # more than the embedded model takes; the pool is rounded up to whole gigabytes


class OpenVINO:
    """Implements `Peer`."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._environment = PeerEnvironment(place.folder / "openvino", _PACKAGES, place.pip_flags)
        self._model = place.models / "openvino-int8"

    @property
    def name(self) -> str:
        return "OpenVINO GenAI"

    def prepare(self) -> None:
        self._environment.install()
        if (self._model / "openvino_model.xml").exists():
            return
        source = self._place.model
        if not source.is_dir():
            source = self._place.models / "hf"
            if not (source / "config.json").exists():
                write_hf_directory(open_checkpoint(self._place.model), source)
        unfinished = self._model.with_suffix(".part")
        shutil.rmtree(unfinished, ignore_errors=True)
        export = ["-m", "optimum.commands.optimum_cli", "export", "openvino", "--model", str(source)]
        how = ["--task", "text-generation-with-past", "--weight-format", "int8", str(unfinished)]
        self._environment.run([str(self._environment.python), *export, *how], "convert", _CONVERT_S)
        unfinished.rename(self._model)

    async def run(self, workload: TokenWorkload, progress: Progress | None = None) -> RunRecord:
        scheduler, properties, reasons = self._settings(workload)
        job = self._environment.folder / "job.json"
        job.write_text(
            json.dumps(
                {
                    "model": str(self._model),
                    "pieces": workload.pieces,
                    "output_tokens": workload.shape.output_tokens,
                    "tool_s": workload.shape.tool_s,
                    "scheduler": scheduler,
                    "properties": properties,
                }
            ),
            encoding="utf-8",
        )
        log = self._environment.folder / "run.log"
        command = [str(self._environment.python), str(GUESTS / "openvino_agents.py"), str(job)]
        turns: list[TurnRecord] = []
        versions: dict[str, str] | None = None
        async with process(command, log, {}) as guest:
            async for said in json_objects(guest, log):
                if "turn" in said:
                    turns.append(_record(said["turn"]))
                    if progress is not None:
                        progress(turns[-1])
                versions = said["done"]["versions"] if "done" in said else versions
        if versions is None:
            raise PeerUnavailable(f"its process ended before the run did; see {log}")
        return RunRecord(
            system=self.name,
            mode="in process",
            settings={**{k: str(v) for k, v in {**scheduler, **properties}.items()}, "weights": "int8", **versions},
            agents=workload.shape.agents,
            turns=tuple(sorted(turns, key=lambda turn: (turn.agent, turn.turn))),
            wall_s=max(turn.end_s for turn in turns),
            reasons=reasons,
        )

    def _settings(self, workload: TokenWorkload) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
        """Scheduler settings, device properties, and why."""
        agents = workload.shape.agents
        gigabytes = math.ceil(agents * longest(workload) * _KV_GB_PER_TOKEN)
        scheduler = {
            "enable_prefix_caching": (True, "histories and the shared prompt are found again"),
            "dynamic_split_fuse": (True, "prompts are cut into chunks that are computed beside decodes (its default)"),
            "cache_size": (gigabytes, "GB of KV: room for all sessions, nothing is evicted"),
            "max_num_seqs": (max(agents, 1), "all agents in one batch"),
        }
        properties = {
            "INFERENCE_NUM_THREADS": (num_cores(), "one thread a core"),
            "KV_CACHE_PRECISION": ("u8", "its default on a CPU: half the memory traffic of attention"),
            "PERFORMANCE_HINT": ("LATENCY", "all cores work on one step; continuous batching makes the batch"),
        }
        reasons = {name: why for name, (_, why) in {**scheduler, **properties}.items()}
        reasons["weights"] = "optimum-intel's --weight-format int8, as its model zoo ships small models"
        return (
            {name: value for name, (value, _) in scheduler.items()},
            {name: value for name, (value, _) in properties.items()},
            reasons,
        )


def _record(told: dict[str, Any]) -> TurnRecord:
    return msgspec.convert(told, TurnRecord)
