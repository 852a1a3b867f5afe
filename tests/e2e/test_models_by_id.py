"""Models by id through the command line: real processes, real HTTP, a hub on this machine."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fake_hub import FakeHub, FakeRepo
from runnable_models import write_runnable
from tenuto.config import Config
from tenuto.errors import ConfigError

Tenuto = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub().running() as running:
        yield running


@pytest.fixture
def tenuto(hub: FakeHub, tmp_path: Path) -> Tenuto:
    environment = {
        "PATH": "/usr/bin:/bin",
        "COLUMNS": "150",
        "NO_COLOR": "1",
        "PYTHONIOENCODING": "utf-8",
        "OMP_NUM_THREADS": "1",
        "TENUTO_CACHE": str(tmp_path / "cache"),
        "HF_ENDPOINT": hub.url,
        "TENUTO_MS_ENDPOINT": hub.url,
    }

    def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tenuto", *arguments],
            capture_output=True,
            encoding="utf-8",
            timeout=180,
            env={**environment, **more},
            cwd=tmp_path,
            check=False,
        )

    return run


@pytest.fixture
def repo(hub: FakeHub, tmp_path: Path) -> FakeRepo:
    folder = write_runnable(tmp_path / "source")
    hub.repos["org/name"] = FakeRepo({p.name: p.read_bytes() for p in folder.iterdir()})
    shutil.rmtree(folder)
    return hub.repos["org/name"]


def test_check_download_run_list_remove(hub: FakeHub, repo: FakeRepo, tenuto: Tenuto, tmp_path: Path) -> None:
    checked = tenuto("models", "check", "org/name", "--json")
    report = json.loads(checked.stdout)
    assert checked.returncode == 0 and report["runs"] and report["download_bytes"] > 100_000, checked
    assert not (tmp_path / "cache").exists()

    downloaded = tenuto("models", "download", "ms:org/name", "--json")
    assert downloaded.returncode == 0 and "fetching ms:org/name" in downloaded.stderr
    assert Path(json.loads(downloaded.stdout)["path"]).is_relative_to(tmp_path / "cache")

    ran = tenuto("embed", "天气", "--model", "hf:org/name", "--json")
    assert ran.returncode == 0 and len(json.loads(ran.stdout)["embedding"]) == 64, ran
    assert "fetching hf:org/name" in ran.stderr

    listed = [json.loads(line) for line in tenuto("models", "list", "--cache", "--json").stdout.splitlines()]
    assert {(m["id"], m["whole"]) for m in listed} == {("hf:org/name", True), ("ms:org/name", True)}
    removed = tenuto("models", "remove", "org/name")
    assert removed.returncode == 0 and "removed hf:org/name" in removed.stdout
    gone = tenuto("run", "hi", "--model", "org/name", HF_HUB_OFFLINE="1")
    assert gone.returncode == 1 and "tenuto models download hf:org/name" in gone.stderr


def test_everything_wrong_with_a_model_on_a_hub_is_told_without_fetching_it(
    hub: FakeHub, repo: FakeRepo, tenuto: Tenuto
) -> None:
    config = json.loads(repo.files["config.json"])
    repo.files["config.json"] = json.dumps(config | {"model_type": "no_such"}).encode()
    del repo.files["tokenizer.json"]
    told = tenuto("models", "check", "hf:org/name")
    assert told.returncode == 1
    for wrong in ("no_such", "tokenizer.json", "does not run"):
        assert wrong in told.stdout, told
    assert "/tmp" not in told.stdout  # where the sketch lay is nobody's concern


def test_settings_come_from_both_names_and_a_token_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENUTO_CACHE", "/short")
    monkeypatch.setenv("HF_TOKEN", "hf_canary")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    config = Config.load()
    assert config.model_cache == Path("/short") and config.offline
    assert "canary" not in repr(config) + str(config.model_dump())
    with pytest.raises(ConfigError, match="hf_endpoint"):
        monkeypatch.setenv("HF_ENDPOINT", "hf-mirror.example")
        Config.load()
    monkeypatch.setenv("HF_ENDPOINT", "https://hf-mirror.example/sub")
    monkeypatch.setenv("TENUTO_MODEL_CACHE", "/long")
    monkeypatch.setenv("TENUTO_OFFLINE", "0")
    assert Config.load().model_cache == Path("/long") and not Config.load().offline
    assert Config.load(model_cache="/given").model_cache == Path("/given")
