"""`tenuto models packed`, after starts of a real model with settings as a user gives them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from runnable_models import write_runnable
from tenuto.cli.main import app
from tenuto.clock import RealClock
from tenuto.config import Config
from tenuto.device.cpu import native_library
from tenuto.errors import ConfigError
from tenuto.wiring import load


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TENUTO_PACKED_CACHE", str(tmp_path / "packed"))
    monkeypatch.setenv("COLUMNS", "150")
    return tmp_path / "packed"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["models", "packed", *arguments])


def start(path: Path) -> None:
    load(Config.load(model=str(path), precision="int8", kv_tokens=64), RealClock())


def test_an_empty_cache(folder: Path) -> None:
    assert "no prepared weights" in run().stdout and run("--json").stdout == ""
    assert json.loads(run("--clear", "--json").stdout) == {"path": str(folder), "freed_bytes": 0}


@pytest.mark.skipif(native_library() is None, reason="installed without a C++ compiler")
def test_starts_leave_weights_that_can_be_listed_and_cleared(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_runnable(tmp_path / "小模型", head_dim=16)
    start(path)
    start(path)
    kept = [json.loads(line) for line in run("--json").stdout.splitlines()]
    assert [one["model"] for one in kept] == ["小模型 (int8)"]
    assert kept[0]["num_bytes"] == Path(kept[0]["path"]).stat().st_size
    assert "小模型 (int8)" in run().stdout and run().stdout.endswith(f"MB in {folder}\n")
    monkeypatch.setenv("TENUTO_CACHE", str(tmp_path / "hub"))
    listed = CliRunner().invoke(app, ["models", "list", "--cache"]).stdout
    assert f"MB in {folder}; see `tenuto models packed`" in listed
    assert "removed" in run("--clear").stdout
    assert list(folder.glob("*.packed")) == [] and "no prepared weights" in run().stdout


def test_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TENUTO_PACKED_CACHE", "off")
    monkeypatch.chdir(tmp_path)
    start(write_runnable(tmp_path / "m", head_dim=16))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m"]
    assert isinstance(run().exception, ConfigError)
