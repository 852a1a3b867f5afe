"""The README's examples run as they stand there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.model

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
DEADLINE_S = 240


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tools, main = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (tmp_path / "tools.py").write_text(tools, encoding="utf-8")
    (tmp_path / "main.py").write_text(main, encoding="utf-8")
    return tmp_path


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, encoding="utf-8", timeout=DEADLINE_S, check=False
    )


def test_the_tools_file_is_used(folder: Path) -> None:
    (question,) = re.findall(r'tenuto run --tools tools\.py (".*?")', README)
    result = _run(folder, "-m", "tenuto", "run", "--json", "--tools", "tools.py", json.loads(question))
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert (events[0]["type"], events[-1]["type"]) == ("run_started", "run_finished"), result.stderr
    (call,) = [event for event in events if event["type"] == "tool_call"]
    assert (call["name"], call["arguments"]) == ("stock_level", {"item": "brass screws"})
    assert events[-1]["reason"] == "answer" and "12" in events[-1]["text"]


def test_the_program_runs(folder: Path) -> None:
    result = _run(folder, "main.py")
    assert result.returncode == 0, result.stderr
    assert "ToolCalled(" in result.stdout and "RunFinished(" in result.stdout
