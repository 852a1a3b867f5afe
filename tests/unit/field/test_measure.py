"""The memory that is foretold is the memory that a loaded model holds."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from family_models import FamilyModel, make, save
from runnable_models import RUNNABLE, write_runnable
from tenuto.checkpoint import open_checkpoint
from tenuto.checkpoint.encoders import open_encoder
from tenuto.clock import RealClock
from tenuto.device import choose_device
from tenuto.device.protocol import Precision
from tenuto.field import Conditions, check_model
from tenuto.field.measure import _tensors
from tenuto.model import load_encoder, load_model
from tiny_encoders import bert_classifier, save_encoder
from tiny_models import TinyLlama


def really_held(model: object) -> int:
    """Bytes of the memory behind all tensors, each piece of memory once, without what fills it up to an alignment."""
    storages = {t.untyped_storage().data_ptr(): (t.untyped_storage().nbytes(), t.nbytes) for t in _tensors(model)}
    assert all(t.device.type == "cpu" for t in _tensors(model))
    assert all(there - used <= 64 for there, used in storages.values())
    return sum(used for _, used in storages.values())


def foretold(path: Path, precision: Precision) -> tuple[int, int]:
    report = check_model(
        path, Conditions(kv_tokens=64, available_bytes=None, clock=RealClock(), precisions=(precision,))
    )
    fit = next(fit for fit in report.precisions if (fit.precision, fit.kv_type) == (precision, "float"))
    return fit.weight_bytes, fit.kv_bytes


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8", "int4"])
@pytest.mark.parametrize("tiny", [RUNNABLE, TinyLlama(vocab_size=320, tied=True, num_layers=3)])
def test_llama(tmp_path: Path, tiny: TinyLlama, precision: Precision) -> None:
    path = write_runnable(tmp_path / "m", tiny)
    decoder = load_model(open_checkpoint(path), choose_device(precision, 1))
    weight_bytes, kv_bytes = foretold(path, precision)
    assert weight_bytes == really_held(decoder)
    assert kv_bytes == decoder.allocate_kv(64 // decoder.device.block_size).num_bytes


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8", "int4"])
@pytest.mark.parametrize(
    "model",
    [
        FamilyModel("qwen2"),
        FamilyModel("gemma3_text", {"sliding_window": 8}),
        FamilyModel("qwen3_moe", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}),
    ],
    ids=lambda m: m.model_type,
)
def test_other_families_without_a_table_of_their_own(tmp_path: Path, model: FamilyModel, precision: Precision) -> None:
    path = save(make(model), tmp_path / "m")
    decoder = load_model(open_checkpoint(path), choose_device(precision, 1))
    weight_bytes, kv_bytes = foretold(path, precision)
    assert weight_bytes == really_held(decoder)
    assert kv_bytes == decoder.allocate_kv(64 // decoder.device.block_size).num_bytes


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8", "int4"])
def test_encoders(tmp_path: Path, precision: Precision) -> None:
    path = save_encoder(tmp_path / "m", bert_classifier())
    encoder = load_encoder(open_encoder(path), choose_device(precision, 1))
    assert foretold(path, precision) == (really_held(encoder), 0)


@pytest.mark.model
def test_the_embedded_model(embedded_model_path: Path) -> None:
    decoder = load_model(open_checkpoint(embedded_model_path), choose_device("fp32", 1))
    assert foretold(embedded_model_path, "fp32")[0] == really_held(decoder)
    assert torch.get_num_threads() >= 1
