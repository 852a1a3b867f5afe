"""A model on a hub is judged by its small files and headers: the weights stay where they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hub_harness import a_store, ref

import tiny_models
from fake_hub import FakeHub, FakeRepo
from runnable_models import write_runnable
from tenuto.checkpoint import open_checkpoint
from tenuto.errors import HubError
from tenuto.hub import sketch_model
from tiny_models import TinyLlama, write_gguf

LARGE = TinyLlama(vocab_size=320, hidden_size=512, intermediate_size=2048, num_heads=8, num_kv_heads=8, head_dim=64)


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def served_bytes(hub: FakeHub, extension: str) -> int:
    """Bytes of weights that were asked for."""
    total = 0
    for request in hub.file_requests():
        if request.path.endswith(extension):
            first, _, last = request.headers["Range"].removeprefix("bytes=").partition("-")
            total += int(last) + 1 - int(first)
    return total


@pytest.mark.parametrize("prefix", ["hf", "ms"])
@pytest.mark.parametrize("sharded", [False, True])
def test_a_sketch_of_safetensors_opens_like_the_model(hub: FakeHub, tmp_path: Path, prefix: str, sharded: bool) -> None:
    model = write_runnable(tmp_path / "name", LARGE, sharded=sharded)
    hub.repos["org/name"] = FakeRepo(files_of(model))
    with a_store(tmp_path / "cache", hub) as store:
        drawn = sketch_model(store, ref(f"{prefix}:org/name"), tmp_path / "sketch")
    real, drawn_checkpoint = open_checkpoint(model), open_checkpoint(drawn.path)
    assert drawn_checkpoint.config == real.config and drawn_checkpoint.name == real.name
    assert {n: drawn_checkpoint.shape(n) for n in drawn_checkpoint.tensor_names()} == {
        n: real.shape(n) for n in real.tensor_names()
    }
    assert drawn.num_bytes == sum(p.stat().st_size for p in model.iterdir())
    assert served_bytes(hub, ".safetensors") < 10_000 < drawn.num_bytes
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("first_bytes", [64, 3000, 8 << 20])
def test_a_sketch_of_gguf_reads_as_much_as_its_header_needs(hub: FakeHub, tmp_path: Path, first_bytes: int) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path, LARGE, LARGE.weights(), "Q8_0")
    hub.repos["org/name"] = FakeRepo({"q8/m.gguf": path.read_bytes()})
    with a_store(tmp_path / "cache", hub) as store:
        drawn = sketch_model(store, ref("org/name"), tmp_path / "sketch", first_bytes)
    assert open_checkpoint(drawn.path).config == open_checkpoint(path).config
    assert drawn.path.stat().st_size == path.stat().st_size
    if first_bytes < 8 << 20:
        assert served_bytes(hub, ".gguf") < path.stat().st_size // 4


def test_the_rotary_divisors_of_a_gguf_file_belong_to_its_config(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(tiny_models._GGUF_NAMES, "rope_freqs", "rope_freqs")
    path = tmp_path / "m.gguf"
    weights = {**LARGE.weights(), "rope_freqs.weight": np.linspace(1, 8, 32, dtype=np.float32)}
    tiny_models.write_gguf(path, LARGE, weights)
    hub.repos["org/name"] = FakeRepo({"m.gguf": path.read_bytes()})
    with a_store(tmp_path / "cache", hub) as store:
        drawn = sketch_model(store, ref("org/name"), tmp_path / "sketch", 1000)
    config = open_checkpoint(path).config
    assert "divisors" in repr(config) and open_checkpoint(drawn.path).config == config


def test_a_server_without_ranges_is_not_read_to_the_end(hub: FakeHub, tmp_path: Path) -> None:
    model = write_runnable(tmp_path / "name")
    hub.repos["org/name"] = FakeRepo(files_of(model))
    hub.ignore_ranges = True
    with a_store(tmp_path / "cache", hub) as store:
        drawn = sketch_model(store, ref("org/name"), tmp_path / "sketch")
    assert open_checkpoint(drawn.path).config == open_checkpoint(model).config


def test_faults_are_told(hub: FakeHub, tmp_path: Path) -> None:
    hub.repos["org/gated"] = FakeRepo({"m.gguf": b"GGUF" * 100}, gated=True)
    hub.repos["org/short"] = FakeRepo({"m.gguf": b"GGUF" * 100}, served={"m.gguf": b"GGUF"})
    with a_store(tmp_path / "cache", hub) as store:
        with pytest.raises(HubError, match="access is restricted"):
            sketch_model(store, ref("org/gated"), tmp_path / "a")
        with pytest.raises(HubError, match="shorter than the hub lists"):
            sketch_model(store, ref("org/short"), tmp_path / "b")
    with a_store(tmp_path / "cache", hub, offline=True) as store, pytest.raises(HubError, match="offline is set"):
        sketch_model(store, ref("org/short"), tmp_path / "c")
