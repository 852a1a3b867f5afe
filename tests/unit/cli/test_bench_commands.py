"""`tenuto bench`: what is refused before anything is loaded."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from tenuto.cli.main import app
from tenuto.errors import TenutoError


@pytest.mark.parametrize("command", ["agents", "peers"])
def test_help_tells_the_defaults(command: str) -> None:
    result = CliRunner().invoke(app, ["bench", command, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert result.exit_code == 0
    for shown in ("--agents", "[default: 8]", "--prompt-words", "[default: 600]", "--json"):
        assert shown in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("agents", "--compare", "--pairs", "3"), "--compare and --pairs are different experiments"),
        (("agents", "--preset", "tool-loop", "--compare"), "--compare and --preset"),
        (("agents", "--url", "http://localhost:1", "--mode", "serial"), "--url"),
        (("agents", "--workload", "tools", "--compare"), "--workload tools"),
        (("agents", "--workload", "poems"), "--workload"),
        (("agents", "--agents", "0"), "--agents"),
        (("peers", "--peers", "openvino,ollama"), "ollama: give some of openvino, llama.cpp, vllm"),
        (("peers", "--peers", " , "), "nothing: give some of"),
    ],
)
def test_wrong_usage_is_told(arguments: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(app, ["bench", *arguments], env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("agents", "--agents", "2000"), "agents of the workload is 2000"),
        (("agents", "--url", "localhost"), "'localhost' is no address of a server"),
        (("agents", "--precision", "int3"), "setting precision"),
    ],
)
def test_what_cannot_be_is_an_error_of_ours(arguments: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(app, ["bench", *arguments])
    assert isinstance(result.exception, TenutoError) and message in str(result.exception)
