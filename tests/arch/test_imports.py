"""Who may import what (pyproject.toml holds the contracts), and that the words and globals rules hold."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "tenuto"
ROOMS_WITHOUT_GLOBALS = ("engine", "chat", "agents", "tools", "text", "model", "device", "checkpoint", "protocol")
FORBIDDEN_WORDS = re.compile(r"class \w*(Manager|Helper|Utils?)\b|class Base[A-Z]")


def test_import_contracts() -> None:
    """In a process of its own: the linter's command switches off the loggers of the process it runs in."""
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=SRC.parents[1],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("room", ROOMS_WITHOUT_GLOBALS)
def test_rooms_read_no_global_clock_or_environment(room: str) -> None:
    """Time, randomness and settings are arguments; that is what makes a seed replay a whole run."""
    forbidden = {("time", "time"), ("time", "monotonic"), ("os", "environ"), ("os", "getenv"), ("datetime", "now")}
    forbidden |= {("random", "random"), ("random", "choice"), ("uuid", "uuid4")}
    for path in (SRC / room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) not in forbidden, f"{path}:{node.lineno} {ast.unparse(node)}"


@pytest.mark.parametrize("path", sorted(SRC.rglob("*.py")), ids=lambda p: str(p.relative_to(SRC)))
def test_no_vague_names(path: Path) -> None:
    found = FORBIDDEN_WORDS.search(path.read_text(encoding="utf-8"))
    assert not found, f"{path}: {found.group(0)}: name it for the one thing it does"
    assert path.stem not in {"utils", "helpers", "common", "misc"}


def test_nothing_unpickles_or_evaluates() -> None:
    """Model files and tool results are untrusted input."""
    for path in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"eval", "exec", "compile"}, f"{path}:{node.lineno}"
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [a.name for a in node.names] + [getattr(node, "module", None) or ""]
                assert not {"pickle", "dill", "marshal", "shelve"} & set(names), f"{path}:{node.lineno}"
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
                raise AssertionError(f"{path}:{node.lineno} torch.load unpickles")
