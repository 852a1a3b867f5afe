"""Terminals that know only ASCII."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_what_a_terminal_cannot_show_becomes_a_question_mark(tmp_path: Path) -> None:
    path = tmp_path / "模型.gguf"
    path.write_bytes(b"text")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "200"}
    command = [sys.executable, "-m", "tenuto", "models", str(path)]
    ended = subprocess.run(command, capture_output=True, timeout=120, env=environment, check=False)
    assert ended.returncode == 1 and b"Traceback" not in ended.stderr, ended.stderr
    assert b"??.gguf" in ended.stdout
