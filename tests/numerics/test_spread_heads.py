"""INT8 attention where one channel of K is far larger than the rest, as models have it."""

from __future__ import annotations

import pytest
import torch

from ragged_batches import Query, ragged
from tenuto.device import AttentionSpec, ReferenceDevice
from tenuto.device.cpu import CpuDevice, native_library
from tenuto.device.protocol import Device, HeadTransform

LIBRARY = native_library()
HEADS, KV_HEADS, TOKENS = 6, 2, 90
TABLE = [3, 1, 6, 2, 5, 4]


def attended(device: Device, qkv: torch.Tensor, size: int) -> torch.Tensor:
    kv = device.allocate_kv([AttentionSpec(HEADS, KV_HEADS, size)], 7)
    found = []
    for rows, position in ((qkv[:-1], 0), (qkv[-1:], TOKENS - 1)):  # by tiles of rows, then a single one
        step = device.begin_step(ragged([Query([0] * len(rows), position, TABLE)]), [], kv)
        q = device.rotate_and_write(rows, kv.layer(0), step, HeadTransform(rotary=None))
        found.append(device.attention(q, kv.layer(0), step))
    return torch.cat(found)


def with_outliers(size: int) -> torch.Tensor:
    heads = torch.randn(TOKENS, HEADS + 2 * KV_HEADS, size, generator=torch.Generator().manual_seed(size))
    heads[:, HEADS : HEADS + KV_HEADS, 5] += 40  # the same in all keys: alone it moves no score
    return heads.flatten(1)


def error(device: Device, qkv: torch.Tensor, size: int) -> float:
    exact = attended(ReferenceDevice("fp32"), qkv, size)
    return float((attended(device, qkv, size) - exact).std() / exact.std())


@pytest.mark.parametrize("size", [64, 128])
def test_an_outlying_channel_costs_no_precision(size: int) -> None:
    qkv = with_outliers(size)
    assert error(ReferenceDevice("int8", kv_type="int8"), qkv, size) < 0.03
    assert error(ReferenceDevice("int8", kv_type="int8"), with_outliers(48), 48) > 0.06  # heads that are not spread


@pytest.mark.skipif(LIBRARY is None, reason="installed without a C++ compiler")
@pytest.mark.parametrize("size", [48, 64, 128])
def test_the_kernels_compute_the_definition(size: int) -> None:
    assert LIBRARY is not None
    qkv = with_outliers(size)
    defined = attended(ReferenceDevice("int8", kv_type="int8"), qkv, size)
    difference = attended(CpuDevice(LIBRARY, 2, "int8"), qkv, size) - defined
    assert difference.std() < 0.002 * defined.std()
