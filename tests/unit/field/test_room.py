"""A model that cannot run is refused before any of its weights is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from runnable_models import write_runnable
from tenuto import wiring, wiring_embedding
from tenuto.checkpoint import open_checkpoint
from tenuto.checkpoint.encoders import open_encoder
from tenuto.clock import RealClock
from tenuto.config import Config
from tenuto.device.cpu import native_library
from tenuto.device.protocol import KVType, Precision
from tenuto.errors import ModelFileError, NeverFits, UnsupportedModel
from tenuto.field import Conditions, Room, check_model, fit, require_encoder_room, require_room
from tenuto.field.fit import decoder_fit
from tenuto.model.load import expected_shapes
from tiny_encoders import bert, save_encoder
from tiny_models import TinyLlama


def room(available: int | None, kv_tokens: int = 1024, kv_type: KVType = "float") -> Room:
    return Room(kv_tokens=kv_tokens, available_bytes=available, kv_type=kv_type)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8", "int4"])
def test_a_byte_too_little_is_too_little(tmp_path: Path, precision: Precision) -> None:
    checkpoint = open_checkpoint(write_runnable(tmp_path / "模型"))
    total = decoder_fit(checkpoint, expected_shapes(checkpoint.config), precision, room(None)).total_bytes
    require_room(checkpoint, precision, room(total))
    require_room(checkpoint, precision, room(None))
    with pytest.raises(NeverFits, match=rf"模型: {precision} needs .* GB .*kv_tokens.*check_memory"):
        require_room(checkpoint, precision, room(total - 1))


def test_kv_counts_as_the_device_will_hold_it(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write_runnable(tmp_path / "m"))
    shapes = expected_shapes(checkpoint.config)
    plain, small = (decoder_fit(checkpoint, shapes, "int8", room(None, kv_type=t)) for t in ("float", "int8"))
    assert plain.weight_bytes == small.weight_bytes
    if native_library() is not None:
        assert small.kv_bytes < plain.kv_bytes
    assert decoder_fit(checkpoint, shapes, "fp32", room(None, kv_type="int8")).kv_bytes == plain.kv_bytes


@pytest.mark.skipif(native_library() is None, reason="the native kernels are not built")
@pytest.mark.parametrize("head_dim", [2, 10, 24, 1040])
def test_heads_that_the_device_cannot_compute(tmp_path: Path, head_dim: int) -> None:
    path = write_runnable(tmp_path / "m", TinyLlama(vocab_size=320, head_dim=head_dim))
    require_room(open_checkpoint(path), "fp32", room(None))
    with pytest.raises(UnsupportedModel, match=rf"m: INT8 .* {head_dim}; use precision"):
        require_room(open_checkpoint(path), "int8", room(None))
    settings = Config(model=str(path), precision="int8", num_threads=1)
    with pytest.raises(UnsupportedModel, match="use precision"):
        _load_without_reading(settings)


@pytest.mark.parametrize("kv_tokens", [10**9, 10**15, 2**70])
def test_loading_refuses_before_it_reads(tmp_path: Path, kv_tokens: int) -> None:
    settings = Config(model=str(write_runnable(tmp_path / "m")), kv_tokens=kv_tokens, num_threads=1)
    with pytest.raises(NeverFits, match="are free"):
        _load_without_reading(settings)


@pytest.mark.parametrize("promised", [{"hidden_size": 2**30}, {"vocab_size": 2**30}, {"num_hidden_layers": 1024}])
def test_what_the_files_do_not_hold_is_told_as_that(tmp_path: Path, promised: dict[str, int]) -> None:
    """Not as a lack of memory."""
    settings = Config(model=str(write_runnable(tmp_path / "m", **promised)), num_threads=1)
    with pytest.raises(ModelFileError, match=r"has shape|are missing"):
        wiring.load(settings, RealClock())


def test_a_model_of_promises_is_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes of config.json ask for thousands of experts."""
    experts = {"num_experts": 1024, "num_hidden_layers": 8, "moe_intermediate_size": 32, "num_experts_per_tok": 3}
    path = write_runnable(tmp_path / "m", **experts, model_type="qwen3_moe")
    monkeypatch.setattr(fit, "load_model", lambda *_: pytest.fail("measured"))
    with pytest.raises(ModelFileError, match="tensors are missing"):
        wiring.load(Config(model=str(path), num_threads=1), RealClock())
    conditions = Conditions(kv_tokens=64, available_bytes=10**10, clock=RealClock())
    assert any("missing" in problem for problem in check_model(path, conditions).problems)


def test_who_knows_better_may_try(tmp_path: Path) -> None:
    settings = Config(model=str(write_runnable(tmp_path / "m")), kv_tokens=10**15, check_memory=False, num_threads=1)
    assert wiring.load(settings, RealClock()).decoder.config.num_layers == 2


def _load_without_reading(config: Config) -> None:
    patch = pytest.MonkeyPatch()
    patch.setattr(wiring, "load_model", lambda *_: pytest.fail("weights were read"))
    try:
        wiring.load(config, RealClock())
    finally:
        patch.undo()


def test_an_encoder_without_room_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save_encoder(tmp_path / "编码器", bert())
    checkpoint = open_encoder(path)
    total = fit.encoder_fit(path, checkpoint.config, "fp32", room(None)).total_bytes
    assert total > 0
    require_encoder_room(checkpoint, "fp32", total)
    require_encoder_room(checkpoint, "fp32", None)
    with pytest.raises(NeverFits, match=r"编码器: fp32 needs .* GB .*check_memory"):
        require_encoder_room(checkpoint, "fp32", total - 1)
    monkeypatch.setattr(wiring_embedding, "available_bytes", lambda: 1)
    settings = Config(model=str(path), num_threads=1)
    assert wiring_embedding.load_text_encoder(path, settings.model_copy(update={"check_memory": False})).name
    monkeypatch.setattr(wiring_embedding, "load_encoder", lambda *_: pytest.fail("weights were read"))
    with pytest.raises(NeverFits):
        wiring_embedding.load_text_encoder(path, settings)
