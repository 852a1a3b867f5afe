"""A model from prepared weights computes the bits of one that was read, and is never another model's."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from structlog.testing import capture_logs

from family_models import FAMILY_MODELS, VOCAB, make, save, save_gguf
from ragged_batches import Query, ragged
from tenuto.checkpoint import open_checkpoint
from tenuto.checkpoint.encoders import open_encoder
from tenuto.checkpoint.stored_model import StoredModel
from tenuto.device import ReferenceDevice
from tenuto.device.cpu import CpuDevice, native_library
from tenuto.device.protocol import Device
from tenuto.errors import ModelFileError
from tenuto.model import Decoder, PackedCache, PackedCacheLimits, load_encoder, load_model
from tenuto.model.prepared import cache_key
from tiny_encoders import bert_classifier, save_encoder

LIBRARY = native_library()
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="installed without a C++ compiler")
IDS = torch.randint(3, VOCAB, (40,), generator=torch.Generator().manual_seed(1)).tolist()


@pytest.fixture(params=["int8", "int4"])
def device(request: pytest.FixtureRequest) -> Device:
    assert LIBRARY is not None
    return CpuDevice(LIBRARY, 1, precision=request.param)


@pytest.fixture
def cache(tmp_path: Path) -> PackedCache:
    return PackedCache(tmp_path / "packed", PackedCacheLimits(10**9, spare_bytes=0), time.time)


def logits(decoder: Decoder) -> torch.Tensor:
    return decoder.forward(ragged([Query(IDS, 0, [1, 2, 3])], all_logits=True), decoder.allocate_kv(4))


def no_reading(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StoredModel, "read", lambda _, name: pytest.fail(f"{name} was read"))


@pytest.mark.parametrize("name", ["llama3", "qwen2-windows", "qwen3", "qwen3-moe", "gemma3", "smollm3"])
def test_a_second_start_reads_nothing_and_computes_the_same(
    name: str, tmp_path: Path, device: Device, cache: PackedCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(make(FAMILY_MODELS[name]), tmp_path / "model")
    plain = logits(load_model(open_checkpoint(path), device))
    first = logits(load_model(open_checkpoint(path), device, cache))
    no_reading(monkeypatch)
    with capture_logs() as logs:
        second = logits(load_model(open_checkpoint(path), device, cache))
    assert torch.equal(first, plain) and torch.equal(second, plain) and logs == []


def test_tied_embeddings_biases_and_gguf(
    tmp_path: Path, device: Device, cache: PackedCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = FAMILY_MODELS["llama"]
    path = save_gguf(family, make(family), tmp_path / "tiny.gguf")
    plain = logits(load_model(open_checkpoint(path), device, cache))
    no_reading(monkeypatch)
    assert torch.equal(logits(load_model(open_checkpoint(path), device, cache)), plain)


def test_encoders(tmp_path: Path, device: Device, cache: PackedCache, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = open_encoder(save_encoder(tmp_path / "model", bert_classifier(3)))
    ids, types = [[5, 6, 7, 8]], [[0, 0, 1, 1]]
    plain = load_encoder(checkpoint, device, cache).scores(ids, types)
    no_reading(monkeypatch)
    assert np.array_equal(load_encoder(checkpoint, device, cache).scores(ids, types), plain)


def test_weights_that_change_in_the_middle_are_read_again(tmp_path: Path, device: Device, cache: PackedCache) -> None:
    """The fingerprint samples the beginnings of tensors only."""
    path = save(make(FAMILY_MODELS["llama"]), tmp_path / "model")
    before = open_checkpoint(path)
    load_model(before, device, cache)
    file = path / "model.safetensors"
    content = bytearray(file.read_bytes())
    middle = before._sources["embed.weight"].offset + 10_000  # type: ignore[attr-defined]
    content[middle : middle + 200] = np.full(50, 3.0, np.float32).tobytes()
    file.write_bytes(content)
    os.utime(file, ns=(1, 1))
    after = open_checkpoint(path)
    assert after.fingerprint == before.fingerprint
    plain = logits(load_model(after, device))
    assert torch.equal(logits(load_model(after, device, cache)), plain)
    assert len(cache.list()) == 2


def test_a_model_that_is_wrong_stays_wrong(tmp_path: Path, device: Device, cache: PackedCache) -> None:
    path = save(make(FAMILY_MODELS["llama"]), tmp_path / "model")
    checkpoint = open_checkpoint(path)
    load_model(checkpoint, device, cache)
    checkpoint._sources.pop("norm.weight")  # type: ignore[attr-defined]
    with pytest.raises(ModelFileError, match="missing"):
        load_model(checkpoint, device, cache)


def test_what_is_kept_fits_no_other_device_or_form(tmp_path: Path, device: Device) -> None:
    assert LIBRARY is not None
    checkpoint = open_checkpoint(save(make(FAMILY_MODELS["llama"]), tmp_path / "model"))
    keys = {cache_key(checkpoint, d, form) for d in (device, ReferenceDevice("int8")) for form in ("a 1", "a 2")}
    assert len(keys) == 4


def test_a_device_that_gives_nothing_away_keeps_nothing(tmp_path: Path, cache: PackedCache) -> None:
    load_model(open_checkpoint(save(make(FAMILY_MODELS["llama"]), tmp_path / "model")), ReferenceDevice(), cache)
    assert cache.list() == [] and not cache.root.exists()


def test_a_file_of_another_model_under_this_key_is_refused(
    tmp_path: Path, device: Device, cache: PackedCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the packed form changes and its version was forgotten: nothing but the sizes tells."""
    paths = [save(make(FAMILY_MODELS[name]), tmp_path / name) for name in ("llama", "qwen3", "qwen3-moe")]
    monkeypatch.setattr("tenuto.model.prepared.cache_key", lambda *_: "a" * 64)
    for number, path in enumerate((*paths, *paths)):
        checkpoint = open_checkpoint(path)
        with capture_logs() as logs:
            again = PackedCache(cache.root, PackedCacheLimits(10**9, 0), time.time)
            found = logits(load_model(checkpoint, device, again))
        assert torch.equal(found, logits(load_model(checkpoint, device)))
        assert len(logs) == (0 if number == 0 else 1)


def test_packed_memory_of_another_size_is_refused(device: Device) -> None:
    assert isinstance(device, CpuDevice)
    weight = device.export_linear(device.prepare_linear([np.ones((20, 70), np.float32)], [np.ones(20, np.float32)]))
    assert torch.equal(device.import_linear(weight).packed, weight.packed)
    wrong = (
        replace(weight, form="int2"),
        replace(weight, packed=weight.packed[:-1]),
        replace(weight, packed=weight.packed[64:]),
        replace(weight, out_features=4000),
        replace(weight, in_features=7000),
        replace(weight, bias=torch.ones(19)),
        replace(weight, bias=torch.ones(20, dtype=torch.float64)),
    )
    for one in wrong:
        with pytest.raises(ValueError, match=r"it is|its bias"):
            device.import_linear(one)
