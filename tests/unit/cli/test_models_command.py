"""`tenuto models` in this process: what its commands print and how they end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from fake_hub import FakeHub, FakeRepo
from runnable_models import write_runnable
from tenuto.cli.main import app
from tenuto.errors import TenutoError

Run = Callable[..., Result]


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub().running() as running:
        yield running


@pytest.fixture
def run(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    for name, value in {"TENUTO_CACHE": str(tmp_path / "cache"), "HF_ENDPOINT": hub.url, "COLUMNS": "150"}.items():
        monkeypatch.setenv(name, value)
    return lambda *arguments: CliRunner().invoke(app, ["models", *arguments])


def test_check_shows_what_json_says(run: Run, tmp_path: Path) -> None:
    path = write_runnable(tmp_path / "小模型")
    shown, as_json = run("check", str(path)), run("check", "小模型", "--json", "--kv-tokens", "64")
    assert shown.exit_code == as_json.exit_code == 0, shown.output
    report = json.loads(as_json.stdout)
    assert report["runs"] and report["kv_tokens"] == 64
    for fact in (
        "小模型",
        "llama",
        "safetensors",
        "BPE (tokenizer.json)",
        "2048 tokens",
        "fp32",
        "bf16",
        "KV of 16384",
    ):
        assert fact in shown.stdout, fact
    assert shown.stdout.strip().endswith("runs")


def test_check_names_every_problem_and_fails(run: Run, tmp_path: Path) -> None:
    path = write_runnable(tmp_path / "m", sharded=True, attn_logit_softcapping=30.0)
    for shard in path.glob("model-*.safetensors"):
        shard.unlink()
    result = run("check", str(path))
    assert result.exit_code == 1 and "does not run" in result.stdout
    assert result.stdout.count("problem:") == 3 and "attn_logit_softcapping" in result.stdout
    unknown = json.loads(run("check", "org/none", "--json").stdout)
    assert "no such repository" in unknown["problems"][0] and not unknown["runs"]
    assert "no id of one on a hub" in run("check", "nothing").stdout


def test_the_cache_is_listed_and_emptied(run: Run, hub: FakeHub) -> None:
    hub.repos["org/name"] = FakeRepo({"m-Q4_0.gguf": b"4" * 2_000_000, "m-Q8_0.gguf": b"8"})
    assert "no models in" in run("list", "--cache").stdout
    path = Path(run("download", "org/name:Q4_0").stdout.strip())
    assert path.read_bytes() == b"4" * 2_000_000
    assert "2 MB" in run("--cache").stdout
    assert run("list", "--cache", "x").exit_code == 2
    assert "removed hf:org/name:Q4_0: 2.0 MB" in run("remove", "org/name:Q4_0").stdout
    assert not path.exists()
    assert isinstance(run("remove", "org/name:Q4_0").exception, TenutoError)


def test_what_is_no_id_cannot_be_downloaded(run: Run) -> None:
    for name in ("nothing", "/some/path", "a/b/c"):
        for command in ("download", "remove"):
            result = run(command, name)
            assert result.exit_code == 2 and "no id of a model" in result.stderr.replace("\n", " ")


def test_a_configured_id_is_listed_without_being_fetched(
    run: Run, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENUTO_MODEL", "org/name")
    result = run("--json")
    assert result.exit_code == 1 and "tenuto models download hf:org/name" in result.stdout
    assert hub.requests == []


def test_a_path_that_cannot_be_used_does_not_keep_others_from_being_listed(run: Run, tmp_path: Path) -> None:
    path = write_runnable(tmp_path / "m")
    (tmp_path / "空").mkdir()
    result = run("空", str(path), "nowhere", "--json")
    listed = {Path(line["path"]).name: line for line in map(json.loads, result.stdout.splitlines())}
    assert result.exit_code == 1 and listed["m"]["runs"]
    assert not listed["空"]["runs"] and "no GGUF file" in listed["空"]["problem"]
    assert not listed["nowhere"]["runs"]


def test_a_context_too_small_for_a_question_is_told(run: Run, tmp_path: Path) -> None:
    path = write_runnable(tmp_path / "m", max_position_embeddings=20)
    result = run("check", str(path))
    assert result.exit_code == 1 and "context: it holds 20 tokens" in " ".join(result.stdout.split())
    assert run("check", str(write_runnable(tmp_path / "n", max_position_embeddings=256))).exit_code == 0
