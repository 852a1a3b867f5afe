"""The page on the fakes is true: its Python runs, and it names every public fake."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tenuto.testing

PAGE = (Path(__file__).parents[3] / "docs" / "testing.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("source", BLOCKS, ids=[f"block {i}" for i in range(len(BLOCKS))])
def test_the_examples_run(source: str) -> None:
    assert "assert" in source
    exec(compile(source, "docs/testing.md", "exec"), {"__name__": "docs"})


def test_every_public_name_exists() -> None:
    assert all(getattr(tenuto.testing, name) is not None for name in tenuto.testing.__all__)
    with pytest.raises(AttributeError, match="no attribute"):
        _ = tenuto.testing.NoSuchFake


@pytest.mark.parametrize(
    "name", ["ScriptedModel", "ScriptedTools", "ScriptedEngine", "World", "WorldConfig", "Violation"]
)
def test_the_page_names_it(name: str) -> None:
    assert f"`{name}" in PAGE
