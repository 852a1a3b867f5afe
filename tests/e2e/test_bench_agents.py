"""`tenuto bench agents` on the embedded model, as a process; and against our own server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tenuto.bench.local import LocalBench
from tenuto.bench.shape import Shape
from tenuto.bench.summary import summarise
from tenuto.bench.tool_workload import make_tool_workload
from tenuto.clock import RealClock
from tenuto.config import Config
from tenuto.wiring import LoadedModel

pytestmark = pytest.mark.model


def test_the_command_measures_both_sides_and_writes_json_and_a_plot(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tenuto", "bench", "agents", "--precision", "int8"]
    small = "--agents 2 --turns 2 --prompt-words 40 --result-words 10 --output-tokens 3 --tool-ms 1"
    plot = tmp_path / "图.svg"
    result = subprocess.run(
        [*command, *small.split(), "--compare", "--rounds", "1", "--json", "--plot", str(plot)],
        capture_output=True,
        encoding="utf-8",
        timeout=240,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert [run["mode"] for run in report["runs"]] == ["reprefill", "serial", "held", "held, speculation"]
    again, serial, held, full = report["runs"]
    assert again["tokens"]["computed"] > serial["tokens"]["computed"]
    assert held["tokens"]["generated"] == full["tokens"]["generated"] == 2 * 2 * 3
    assert held["tokens"]["shared"] > 0 and held["kv"]["kv_bytes"] > 0
    assert all(ratio["value"] > 0 for ratio in report["ratios"])
    assert ElementTree.parse(plot).getroot().tag.endswith("svg")


def test_tool_calls_are_made_and_most_of_their_tokens_cost_no_step(loaded: LoadedModel, config: Config) -> None:
    shape = Shape(agents=2, turns=2, prompt_words=30, result_words=15, output_tokens=128, tool_s=0.0)
    bench = LocalBench(loaded, config, RealClock())
    summary = summarise(asyncio.run(bench.run_tools(make_tool_workload(shape))))
    assert summary.tokens.forced is not None and summary.tokens.forced > summary.tokens.generated / 2
    assert summary.tokens_per_decode_step is not None and summary.tokens_per_decode_step >= 1.5
    assert summary.kv is not None and summary.kv.kv_bytes > 0


def test_the_same_agents_in_process_and_through_the_server() -> None:
    command = [sys.executable, "-m", "tenuto", "bench", "service", "--precision", "int8", "--rounds", "1", "--json"]
    small = "--agents 2 --turns 2 --prompt-words 40 --result-words 10 --output-tokens 3 --tool-ms 1"
    result = subprocess.run([*command, *small.split()], capture_output=True, encoding="utf-8", timeout=240, check=False)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    chat, served_chat, held, served_held = report["runs"]
    assert [run["mode"] for run in report["runs"]] == ["chat", "chat, served", "held", "sessions, served"]
    assert held["tokens"]["computed"] == served_held["tokens"]["computed"]
    assert chat["tokens"]["generated"] == served_chat["tokens"]["generated"] == 2 * 2 * 3
    assert len(report["idle_client"]["here_ms"]) == len(report["idle_client"]["served_ms"]) > 10
