"""Finding the kernels: those that cannot be used are as good as absent."""

from __future__ import annotations

import shutil
import subprocess
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
from structlog.testing import capture_logs

import tenuto.device.choose
from tenuto.device import ReferenceDevice, choose_device
from tenuto.device.cpu.library import library_in

NAME = f"_native{EXTENSION_SUFFIXES[0]}"


def test_none_is_none(tmp_path: Path) -> None:
    with capture_logs() as logs:
        assert library_in(tmp_path) is None
    assert not logs


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"no library at all", b"\x7fELF" + b"\xff" * 4096])
def test_a_file_that_is_no_library(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    with capture_logs() as logs:
        assert library_in(tmp_path) is None
    (warning,) = logs
    assert warning["log_level"] == "warning" and NAME in warning["reason"] and "install" in warning["fix"]


@pytest.mark.skipif(shutil.which("cc") is None, reason="no compiler")
def test_a_library_that_lacks_functions(tmp_path: Path) -> None:
    """As after an update of the code alone."""
    source = tmp_path / "old.c"
    source.write_text('const char *tenuto_isa(void) { return "portable"; }\n')
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / NAME, source], check=True, timeout=60)
    with capture_logs() as logs:
        assert library_in(tmp_path) is None
    assert "tenuto_use_isa" in logs[0]["reason"]


def test_without_kernels_the_reference_device_stands_in_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenuto.device.choose, "native_library", lambda: None)
    with capture_logs() as logs:
        device = choose_device("int8", 1, "int8")
    assert isinstance(device, ReferenceDevice) and device.precision == "int8"
    assert logs[0]["log_level"] == "warning" and "slowly" in logs[0]["event"] and "compiler" in logs[0]["fix"]
