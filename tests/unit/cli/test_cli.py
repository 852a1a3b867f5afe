"""The command line where no weights are needed: help, listings, and what wrong input looks like."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from runnable_models import write_runnable
from tenuto.agents import TurnStarted
from tenuto.cli.chat import next_query
from tenuto.cli.render import json_lines


def tenuto(*arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tenuto", *arguments],
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        env={"PATH": "/usr/bin:/bin", "COLUMNS": "120", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8", **environment},
        check=False,
    )


def test_help_names_the_commands() -> None:
    result = tenuto("--help")
    assert result.returncode == 0
    for name in ("run", "chat", "demo", "serve", "models"):
        assert name in result.stdout


def test_models_lists_the_embedded_one_and_says_why_others_do_not_run(tmp_path: Path) -> None:
    (tmp_path / "坏.gguf").write_bytes(b"GGUF" + b"\x00" * 10)
    result = tenuto("models", "--json", str(tmp_path))
    assert result.returncode == 1
    embedded, broken = map(json.loads, result.stdout.splitlines())
    assert embedded["runs"] and embedded["family"] == "llama" and embedded["num_parameters"] > 1e8
    assert not broken["runs"] and "坏.gguf" in broken["problem"]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("run", "hi", "--model", "/nowhere/x.gguf"), 1, "no model at /nowhere/x.gguf"),
        (("run", "hi", "--precision", "int3"), 1, "setting precision (TENUTO_PRECISION)"),
        (("run", "  "), 2, "the question is empty"),
        (("run", "hi", "--max-turns", "0"), 2, "--max-turns"),
        (("serve", "--port", "70000"), 2, "--port"),
        (
            ("serve", "--kv-type", "int8", "--precision", "fp32", "--model", "/nowhere/x.gguf"),
            1,
            "setting kv_type: int8",
        ),
        (("serve", "--tls-cert", "/无/c.pem", "--tls-key", "/无/k.pem", "--model", "/nowhere/x.gguf"), 1, "/无/c.pem"),
        (("nonsense",), 2, "No such command"),
        (("models", "/nowhere"), 1, "/nowhere"),
        (("models", "x[/y].gguf"), 1, "no model at x[/y].gguf"),
    ],
)
def test_wrong_input_is_told_without_a_stack_trace(arguments: tuple[str, ...], status: int, message: str) -> None:
    result = tenuto(*arguments)
    assert result.returncode == status, result
    assert message in result.stderr + result.stdout
    assert "Traceback" not in result.stderr


def test_a_port_in_use_is_told_before_a_model_is_looked_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = tenuto("serve", "--port", str(taken.getsockname()[1]), "--model", "/nowhere/x.gguf")
    assert result.returncode == 1
    assert "cannot listen on 127.0.0.1" in result.stderr and "x.gguf" not in result.stderr
    assert "Traceback" not in result.stderr


def test_a_wrong_setting_in_the_environment_is_named() -> None:
    result = tenuto("run", "hi", TENUTO_KV_TOKENS="many")
    assert result.returncode == 1 and "TENUTO_KV_TOKENS" in result.stderr


def test_a_tools_file_that_fails_is_told_with_its_line_before_the_model_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "tools.py"
    path.write_text("x = 1\nraise RuntimeError('坏了')\n", encoding="utf-8")
    result = tenuto("run", "hi", "--tools", str(path))
    assert result.returncode == 1
    assert "line 2" in result.stderr and "坏了" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full is Linux's")
def test_a_full_disk_is_told_without_a_stack_trace() -> None:
    command = f"{sys.executable} -m tenuto models > /dev/full"
    result = subprocess.run(["/bin/sh", "-c", command], capture_output=True, encoding="utf-8", timeout=120, check=False)
    assert result.returncode == 1
    assert "No space left" in result.stderr and "Traceback" not in result.stderr


def test_what_a_tool_prints_does_not_stand_between_the_json_lines(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with json_lines() as show:
        print("from a tool: 你好")
        show(TurnStarted(turn=1))
    out, err = capfdbinary.readouterr()
    assert out == b'{"type":"turn_started","turn":1}\n'
    assert "from a tool: 你好" in err.decode()


def test_chat_answers_unknown_commands_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = iter(["", "  ", "/help", "/new", "北京？", "/quit", "never read"])
    monkeypatch.setattr("builtins.input", lambda _: next(lines))
    console = Console(width=200)
    assert [next_query(console), next_query(console), next_query(console)] == ["/new", "北京？", None]
    assert capsys.readouterr().out.count("starts over") == 1


def test_a_context_too_small_for_the_built_in_tools_names_the_way_out(tmp_path: Path) -> None:
    path = str(write_runnable(tmp_path / "模型"))
    result = tenuto("run", "hi", "--model", path)
    assert result.returncode == 1 and "--tools with a few of your own" in result.stderr
    tools = tmp_path / "tools.py"
    tools.write_text(
        f"{'from tenuto.tools import tool'}\n@tool\ndef f(x: str) -> str:\n    '{'d' * 3000}'\n    return x\n"
    )
    result = tenuto("run", "hi", "--model", path, "--tools", str(tools))
    assert result.returncode == 1 and "--tools with" not in result.stderr
