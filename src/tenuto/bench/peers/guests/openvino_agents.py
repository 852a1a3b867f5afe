"""Runs a workload on OpenVINO GenAI's continuous batching, in this process: no server stands between.

    python openvino_agents.py JOB.json

JOB.json: {"model": folder, "pieces": [agents][turns][ids], "output_tokens": n, "tool_s": seconds,
"scheduler": {field: value}, "properties": {name: value}}.

Prints one JSON object a line: {"turn": {...}} as each turn ends, then {"done": {"versions": {...}}}.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import openvino_genai as genai


class Agent:
    """One agent's turn: waiting for its tool until `due_s`, or generating."""

    def __init__(self, number: int, pieces: list[list[int]]) -> None:
        self.number = number
        self.pieces = pieces
        self.turn = 0
        self.due_s = 0.0
        self.history: list[int] = []
        self.handle: Any = None
        self.new: list[int] = []
        self.start_s = self.first_s = 0.0


class Run:
    """All agents on one pipeline, in one thread: requests are added as tools finish, then a step is made."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        scheduler = genai.SchedulerConfig()
        for name, value in job["scheduler"].items():
            if not hasattr(scheduler, name):
                raise SystemExit(f"this OpenVINO GenAI's scheduler has no setting {name}")
            setattr(scheduler, name, value)
        self.pipe = genai.ContinuousBatchingPipeline(job["model"], scheduler, "CPU", job["properties"])
        self.num_requests = 0

    def config(self, num_tokens: int) -> Any:
        """Greedy, exactly so many tokens."""
        config = genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = num_tokens
        config.ignore_eos = True
        config.do_sample = False
        return config

    def add(self, ids: list[int], num_tokens: int) -> Any:
        self.num_requests += 1
        tensor = ov.Tensor(np.array([ids], dtype=np.int64))
        return self.pipe.add_request(self.num_requests, tensor, self.config(num_tokens))

    def warm_up(self) -> None:
        self.add([5 + i % 100 for i in range(64)], 2)
        while self.pipe.has_non_finished_requests():
            self.pipe.step()

    def agents(self) -> None:
        agents = [Agent(number, pieces) for number, pieces in enumerate(self.job["pieces"])]
        origin_s = time.perf_counter()
        live = list(agents)
        while live:
            now_s = time.perf_counter() - origin_s
            for agent in live:
                if agent.handle is None and now_s >= agent.due_s:
                    agent.history += agent.pieces[agent.turn]
                    agent.start_s, agent.new = time.perf_counter() - origin_s, []
                    agent.handle = self.add(agent.history, self.job["output_tokens"])
            if self.pipe.has_non_finished_requests():
                self.pipe.step()
            else:
                time.sleep(max(0.0, min(a.due_s for a in live) - (time.perf_counter() - origin_s)))
                continue
            now_s = time.perf_counter() - origin_s
            for agent in [a for a in live if a.handle is not None]:
                self.read(agent, now_s)
                if len(agent.new) >= self.job["output_tokens"]:
                    self.end_turn(agent, now_s)
                    if agent.turn == len(agent.pieces):
                        live.remove(agent)

    def read(self, agent: Agent, now_s: float) -> None:
        while agent.handle.can_read():
            for output in agent.handle.read().values():
                if not agent.new:
                    agent.first_s = now_s
                agent.new += list(output.generated_ids)

    def end_turn(self, agent: Agent, now_s: float) -> None:
        tell(
            turn={
                "agent": agent.number,
                "turn": agent.turn,
                "num_in": len(agent.pieces[agent.turn]),
                "num_context": len(agent.history),
                "num_out": len(agent.new),
                "start_s": agent.start_s,
                "first_s": agent.first_s,
                "end_s": now_s,
                "ids": agent.new,
            }
        )
        agent.history += agent.new
        agent.turn += 1
        agent.handle = None
        agent.due_s = now_s + self.job["tool_s"]


def tell(**value: Any) -> None:
    print(json.dumps(value), flush=True)


def main() -> None:
    run = Run(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    run.warm_up()
    run.agents()
    tell(done={"versions": {"openvino": ov.__version__, "openvino_genai": genai.__version__}})


if __name__ == "__main__":
    main()
