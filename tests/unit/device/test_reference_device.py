"""The reference device's operations against their definitions, written out in float64."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch.nn.functional import gelu

from ragged_batches import Query, ragged
from tenuto.device import AttentionSpec, ReferenceDevice
from tenuto.device.protocol import HeadTransform
from tenuto.device.row_tiles import RowTiles, probe, tiled

PRECISIONS = [("fp32", 1e-5), ("bf16", 0.02)]


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("precision", "tolerance"), PRECISIONS)
def test_norm_linear_and_activation(precision: str, tolerance: float) -> None:
    device = ReferenceDevice(precision)
    x, w = device.upload(random(5, 24)), device.upload_norm(random(24, seed=1))
    exact, weight = x.double(), w.double()
    normed = exact / (exact.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight
    torch.testing.assert_close(device.rms_norm(x, w, 1e-5).double(), normed, atol=tolerance, rtol=tolerance)

    y, total = device.add_rms_norm(x, x, w, 1e-5)
    assert torch.equal(total, x + x) and torch.equal(y, device.rms_norm(total, w, 1e-5))

    parts = [random(7, 24, seed=2), random(3, 24, seed=3)]
    matrix = torch.cat([device.upload(part) for part in parts]).double()
    product = device.linear(x, device.prepare_linear(parts))
    torch.testing.assert_close(product.double(), exact @ matrix.T, atol=tolerance * 5, rtol=tolerance)

    gate, up = exact[:, :12], exact[:, 12:]
    for activation, of_gate in (("silu", gate * gate.sigmoid()), ("gelu_tanh", gelu(gate, approximate="tanh"))):
        got = device.gated(x, activation).double()
        torch.testing.assert_close(got, of_gate * up, atol=tolerance, rtol=tolerance)

    biases = [random(7, seed=4), random(3, seed=5)]
    product = device.linear(x, device.prepare_linear(parts, biases))
    bias = device.upload(np.concatenate(biases)).double()
    torch.testing.assert_close(product.double(), exact @ matrix.T + bias, atol=tolerance * 5, rtol=tolerance)


def test_activation_of_extreme_values_stays_finite() -> None:
    x = torch.tensor([[-1e4, -100.0, 0.0, 100.0, 1e4, 1, 1, 1, 1, 1]])
    for activation in ("silu", "gelu_tanh"):
        assert ReferenceDevice().gated(x, activation).tolist() == [[0.0, 0.0, 0.0, 100.0, 1e4]]


@pytest.mark.parametrize("block_size", [4, 16, 24, 300])
@pytest.mark.parametrize("heads", [(4, 2), (3, 3), (9, 1)])
@pytest.mark.parametrize("window", [None, 1, 8, 257])
def test_attention_over_block_tables(block_size: int, heads: tuple[int, int], window: int | None) -> None:
    """A ragged batch through scattered blocks against one sequence at a time, in float64; with windows too (B26)."""
    spec = AttentionSpec(*heads, head_dim=6, window=window, scale=0.3 if window == 8 else None)
    device = ReferenceDevice(block_size=block_size)
    held_and_new = [(0, 1), (299, 1), (0, 45), (255, 1), (256, 2), (20, 300)]
    blocks = itertools.count(1)
    tables = [[next(blocks) for _ in range(-(-(held + new) // block_size))] for held, new in held_and_new]
    kv = device.allocate_kv([spec], next(blocks))
    frequencies = 10000.0 ** (-torch.arange(0, 6, 2, dtype=torch.float32) / 6)
    rotary = [device.rotary_table(frequencies, 1.0, 400)]
    whole = [torch.from_numpy(random(h + n, (heads[0] + 2 * heads[1]) * 6, seed=h)) for h, n in held_and_new]

    def compute(parts: list[tuple[int, int]]) -> list[torch.Tensor]:
        queries = [Query([0] * (b - a), a, t) for (a, b), t in zip(parts, tables, strict=True) if b > a]
        step = device.begin_step(ragged(queries, block_size), rotary, kv)
        rows = torch.cat([w[a:b] for w, (a, b) in zip(whole, parts, strict=True)])
        q = device.rotate_and_write(rows, kv.layer(0), step, HeadTransform())
        return list(device.attention(q, kv.layer(0), step).split([b - a for a, b in parts if b > a]))

    compute([(0, held) for held, _ in held_and_new])
    for got, qkv, (held, _) in zip(compute([(h, h + n) for h, n in held_and_new]), whole, held_and_new, strict=True):
        torch.testing.assert_close(got.double(), naive_attention(qkv.double(), spec)[held:], atol=1e-5, rtol=1e-5)


def naive_attention(qkv: torch.Tensor, spec: AttentionSpec) -> torch.Tensor:
    """Rotate, then attend token by token and head by head."""
    tokens, size = qkv.shape[0], spec.head_dim
    heads = qkv.view(tokens, -1, size)
    angles = torch.arange(tokens).double()[:, None] / 10000.0 ** (torch.arange(0, size, 2).double() / size)
    turned = torch.view_as_complex(torch.stack(heads.chunk(2, dim=-1), dim=-1)) * torch.polar(
        torch.ones_like(angles), angles
    ).unsqueeze(1)
    rotated = torch.cat([turned.real, turned.imag], dim=-1)
    out = torch.empty(tokens, spec.num_heads, size, dtype=torch.float64)
    for head in range(spec.num_heads):
        shared = spec.num_heads + head // spec.group_size
        scores = rotated[:, head] @ rotated[:, shared].T * (spec.scale or 1 / math.sqrt(size))
        age = torch.arange(tokens)[:, None] - torch.arange(tokens)[None, :]
        hidden = (age < 0) | (age >= (spec.window or tokens))
        scores = scores.masked_fill(hidden, float("-inf"))
        out[:, head] = scores.softmax(-1) @ heads[:, shared + spec.num_kv_heads]
    return out.flatten(1)


def test_copy_blocks_copies_every_layer_and_nothing_else() -> None:
    device = ReferenceDevice(block_size=4)
    specs = [AttentionSpec(2, 1, 4), AttentionSpec(4, 2, 6), AttentionSpec(2, 1, 4)]
    kv = device.allocate_kv(specs, 5)
    for index in range(3):
        layer = kv.layer(index)
        for at, stored in enumerate((layer.keys, layer.values)):
            stored.copy_(torch.from_numpy(random(*stored.shape, seed=index * 2 + at)))
    before = [(kv.layer(i).keys.clone(), kv.layer(i).values.clone()) for i in range(3)]
    device.copy_blocks(kv, [(0, 3), (1, 4)])
    device.copy_blocks(kv, [])
    for index, saved in enumerate(before):
        for was, stored in zip(saved, (kv.layer(index).keys, kv.layer(index).values), strict=True):
            assert torch.equal(stored, was[:, [0, 1, 2, 0, 1]])


def test_layers_of_one_kind_share_one_allocation() -> None:
    spec, other = AttentionSpec(2, 1, 4), AttentionSpec(4, 2, 6)
    kv = ReferenceDevice(block_size=4).allocate_kv([spec, other, spec], 5)
    storages = [kv.layer(i).keys.untyped_storage().data_ptr() for i in range(3)]
    assert storages[0] == storages[2] != storages[1]
    assert kv.num_bytes == 5 * 4 * 4 * 2 * (4 + 12 + 4)


@pytest.mark.parametrize("sizes", [(16,), (2, 4, 8, 16), (2, 16, 64, 512)])
def test_row_tiles_cover_every_row_once(sizes: tuple[int, ...]) -> None:
    tiles = RowTiles(sizes, exact=True)
    for count in range(1, 700):
        rows = [row for at, number, size in tiles.cut(count) for row in range(at, at + number) if number <= size]
        assert rows == list(range(count))
        assert all(size in sizes for _, _, size in tiles.cut(count))
    x = torch.from_numpy(random(83, 3))
    assert torch.equal(tiled(lambda rows: rows * 2, x, 3, tiles), x * 2)


def test_the_probe_keeps_only_row_counts_that_agree() -> None:
    """A product that, like a BLAS, adds in another order for one row and for 64 rows or more."""

    def product(x: torch.Tensor) -> torch.Tensor:
        halves = x[:, :40] @ matrix[:40] + x[:, 40:] @ matrix[40:]
        return halves * 1.0000001 if x.shape[0] == 1 or x.shape[0] >= 64 else halves.double().float()

    matrix = torch.from_numpy(random(80, 6))
    tiles = probe(product, 80, 6, torch.float32)
    assert 16 in tiles.sizes and not {1, 64, 128, 256, 512} & set(tiles.sizes)


def test_a_product_without_any_fixed_order_is_not_called_exact() -> None:
    counter = itertools.count(1)
    tiles = probe(lambda x: x[:, :6] * next(counter), 80, 6, torch.float32)
    assert not tiles.exact
