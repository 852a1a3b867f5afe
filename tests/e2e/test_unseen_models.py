"""A model of each family, never seen before, given by its path alone, runs the weather agent's loop.

Its weights are random, so what it says is noise; the grammar makes a call of it, with a city out of the question.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from family_directories import MANNERS, write_family_directory

from tenuto.agents import Agent, RunResult
from tenuto.clock import RealClock
from tenuto.protocol.engine import SamplingParams
from tenuto.tools.builtin import weather_tool
from tenuto.wiring import open_model

QUESTION = "北京明天天气怎么样？ Or rather Paris, today?"


async def _answer(directory: Path) -> RunResult:
    async with open_model(model=str(directory), kv_tokens=8192) as model:
        agent = Agent(
            model,
            [weather_tool(RealClock())],
            "You are a helpful assistant.",
            tool_choice="required",
            parallel_tool_calls=False,
            max_tokens=64,
            max_turns=2,
            sampling=SamplingParams(temperature=1.0, seed=5),
        )
        return await agent.answer(QUESTION)


@pytest.mark.parametrize("name", MANNERS)
def test_the_weather_loop(name: str, tmp_path: Path) -> None:
    result = anyio.run(_answer, write_family_directory(name, tmp_path / name))
    assert result.error is None, result.error
    roles = [message.role for message in result.messages]
    assert roles[:4] == ["system", "user", "assistant", "tool"]
    (call,) = result.messages[2].tool_calls
    assert call.name == "weather" and call.arguments["city"] in QUESTION
    assert result.messages[3].content
    assert result.usage.num_turns == 2 and result.usage.num_held > 0, "the second turn goes on from held KV"


def test_the_command_line_takes_a_path(tmp_path: Path) -> None:
    directory = write_family_directory("qwen3", tmp_path / "unseen")
    command = [sys.executable, "-m", "tenuto", "run", "--model", str(directory), "--json", QUESTION]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[-1]["type"] == "run_finished"
