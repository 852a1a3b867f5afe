"""Small files, short functions, few parameters: what makes the code readable is held by a test."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAX_FILE_LINES = {"src": 400, "tests": 600}
MAX_FUNCTION_LINES = 70
MAX_PARAMETERS = 6

SOURCES = sorted(p for top in MAX_FILE_LINES for p in (ROOT / top).rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_and_functions_are_small(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    limit = MAX_FILE_LINES[path.relative_to(ROOT).parts[0]]
    num_lines = text.count("\n")
    assert num_lines <= limit, f"{path} has {num_lines} lines; split it ({limit} at most)"
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        where = f"{path}:{node.lineno} {node.name}"
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        assert length <= MAX_FUNCTION_LINES, f"{where} has {length} lines ({MAX_FUNCTION_LINES} at most)"
        arguments = [a.arg for a in node.args.posonlyargs + node.args.args + node.args.kwonlyargs]
        num_parameters = len([a for a in arguments if a not in ("self", "cls")])
        if path.is_relative_to(ROOT / "src") and not _is_command(path, node.name):
            assert num_parameters <= MAX_PARAMETERS, f"{where} takes {num_parameters} parameters ({MAX_PARAMETERS})"


def test_test_files_have_names_of_their_own() -> None:
    """pytest imports them by their bare name."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(set(names)) == sorted(names)


def _is_command(path: Path, name: str) -> bool:
    """A CLI command declares one parameter an option; it is named like its file."""
    return path.parent.name == "cli" and path.stem == name
