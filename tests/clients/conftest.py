"""A real `tenuto serve` with the embedded model, for clients that live in an environment of their own."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
START_DEADLINE_S = 120.0
STOP_DEADLINE_S = 60.0


def pytest_configure() -> None:
    """Clients that write their logs where they are started write them elsewhere."""
    os.chdir(tempfile.mkdtemp(prefix="tenuto-clients-"))


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """The server's root, without /v1. `TENUTO_SERVER` names the executable; by default it is the repository's own."""
    executable = os.environ.get("TENUTO_SERVER", str(ROOT / ".venv" / "bin" / "tenuto"))
    process = subprocess.Popen(
        [executable, "serve", "--port", "0"], stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )
    watchdog = threading.Timer(START_DEADLINE_S, process.kill)
    watchdog.start()
    assert process.stderr is not None
    found = next((m.group(0) for m in (re.search(r"http://[\w.:]+", line) for line in process.stderr) if m), None)
    watchdog.cancel()
    try:
        assert found, "the server ended before it listened"
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield found.removesuffix("/v1")
        assert process.poll() is None, "the server died under its clients"
    finally:
        process.terminate()
        try:
            process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert process.returncode == 0, "the server did not stop in order"


@pytest.fixture
def base_url(server_url: str) -> str:
    return server_url + "/v1"
