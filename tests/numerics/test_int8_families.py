"""The native CPU device against the reference device's definitions of INT8 and INT4, on every family."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from family_models import FAMILY_MODELS, VOCAB, make, save
from ragged_batches import Query, ragged
from tenuto.checkpoint import open_checkpoint
from tenuto.device import ReferenceDevice
from tenuto.device.cpu import CpuDevice, native_library
from tenuto.device.protocol import KVType, Precision
from tenuto.model import load_model

LIBRARY = native_library()
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="installed without a C++ compiler")
IDS = torch.randint(3, VOCAB, (330,), generator=torch.Generator().manual_seed(1)).tolist()
TABLES = [list(range(1 + 21 * i, 22 + 21 * i)) for i in range(3)]


@pytest.mark.parametrize("name", ["llama3", "qwen2-windows", "qwen3", "qwen3-moe", "gemma3", "smollm3"])
@pytest.mark.parametrize(("precision", "kv_type"), [("int8", "float"), ("int8", "int8"), ("int4", "float")])
def test_a_ragged_batch_computes_the_definition(
    name: str, precision: Precision, kv_type: KVType, tmp_path: Path
) -> None:
    """A rounding that falls the other way moves a value by a step of 1/127 of its group: most agree far closer."""
    assert LIBRARY is not None
    checkpoint = open_checkpoint(save(make(FAMILY_MODELS[name]), tmp_path))
    found = []
    for device in (CpuDevice(LIBRARY, 2, kv_type, precision), ReferenceDevice(precision, kv_type=kv_type)):
        decoder = load_model(checkpoint, device)
        kv = decoder.allocate_kv(64)
        decoder.forward(ragged([Query(IDS[:300], 0, TABLES[0]), Query(IDS[:17], 0, TABLES[1])]), kv)
        mixed = [Query(IDS[300:], 300, TABLES[0]), Query(IDS[17:18], 17, TABLES[1]), Query(IDS[:40], 0, TABLES[2])]
        found.append(decoder.forward(ragged(mixed, all_logits=True), kv))
    error = (found[0] - found[1]).abs()
    scale = found[1].std()
    assert error.median() < 0.01 * scale and error.quantile(0.99) < 0.25 * scale


@pytest.mark.parametrize("kv_type", ["float", "int8"])
def test_copied_blocks(kv_type: KVType, tmp_path: Path) -> None:
    assert LIBRARY is not None
    decoder = load_model(open_checkpoint(save(make(FAMILY_MODELS["llama"]), tmp_path)), CpuDevice(LIBRARY, 1, kv_type))
    kv = decoder.allocate_kv(8)
    assert kv.num_bytes == 8 * 16 * decoder.kv_bytes_per_token()
    decoder.forward(ragged([Query(IDS[:20], 0, [1, 2])]), kv)
    decoder.device.copy_blocks(kv, [(2, 5)])
    one = decoder.forward(ragged([Query(IDS[20:21], 20, [1, 2])]), kv)
    assert torch.equal(one, decoder.forward(ragged([Query(IDS[20:21], 20, [1, 5])]), kv))
