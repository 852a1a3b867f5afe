"""AWQ, GPTQ and compressed-tensors: exact weights from packed tensors; other forms are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quantised_models import (
    awq_parts,
    compressed_config,
    draw,
    gptq_parts,
    int8_parts,
    packed_parts,
    write_quantised,
)
from tenuto.checkpoint import open_checkpoint
from tenuto.errors import ModelFileError, UnsupportedModel
from tiny_models import Arrays, TinyLlama

TINY = TinyLlama(num_layers=1)
Pack = Callable[[tuple[int, ...], int], tuple[Arrays, np.ndarray]]
HF_OF = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj", "o": "self_attn.o_proj"}


def awq(group_size: int) -> Pack:
    def pack(shape: tuple[int, ...], seed: int) -> tuple[Arrays, np.ndarray]:
        drawn = draw(shape, 4, group_size, seed)
        return awq_parts(drawn), drawn.exact()

    return pack


def gptq(bits: int, group_size: int, *, in_order: bool = True, **how: Any) -> Pack:
    def pack(shape: tuple[int, ...], seed: int) -> tuple[Arrays, np.ndarray]:
        drawn = draw(shape, bits, group_size, seed, in_order=in_order)
        return gptq_parts(drawn, bits, **how), drawn.exact()

    return pack


def pack_quantised(bits: int, group_size: int, *, in_order: bool = True, **how: Any) -> Pack:
    def pack(shape: tuple[int, ...], seed: int) -> tuple[Arrays, np.ndarray]:
        drawn = draw(shape, bits, group_size, seed, symmetric=how.get("zeros") == "", in_order=in_order)
        return packed_parts(drawn, bits, **how), drawn.exact()

    return pack


def int8(group_size: int, *, zeros: bool = False) -> Pack:
    def pack(shape: tuple[int, ...], seed: int) -> tuple[Arrays, np.ndarray]:
        drawn = draw(shape, 8, group_size, seed, symmetric=not zeros)
        return int8_parts(drawn, zeros=zeros), drawn.exact()

    return pack


AWQ_SETTINGS = {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True}
GPTQ_SETTINGS = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": True}
WHOLE = 10_000  # a group larger than any row

FORMS: dict[str, tuple[dict[str, Any], Pack]] = {
    "awq": (AWQ_SETTINGS, awq(32)),
    "awq, old names": ({"quant_method": "awq", "w_bit": 4, "q_group_size": 16, "version": "GEMM"}, awq(16)),
    "gptq 4": (GPTQ_SETTINGS, gptq(4, 32)),
    "gptq 4 by activation": (GPTQ_SETTINGS | {"desc_act": True}, gptq(4, 32, in_order=False)),
    "gptq 4 without order": (GPTQ_SETTINGS, gptq(4, 32, with_order=False)),
    "gptq 4 v2": (GPTQ_SETTINGS | {"checkpoint_format": "gptq_v2"}, gptq(4, 32, v2=True)),
    "gptq 2": (GPTQ_SETTINGS | {"bits": 2}, gptq(2, 32)),
    "gptq 3": (GPTQ_SETTINGS | {"bits": 3}, gptq(3, 32)),
    "gptq 8": (GPTQ_SETTINGS | {"bits": 8, "group_size": 16}, gptq(8, 16)),
    "gptq whole": (GPTQ_SETTINGS | {"group_size": -1}, gptq(4, WHOLE)),
    "W4A16": (compressed_config(), pack_quantised(4, 32, zeros="")),
    "W4A16 zeros": (compressed_config(symmetric=False), pack_quantised(4, 32)),
    "W4A16 zeros in bytes": (compressed_config(symmetric=False), pack_quantised(4, 32, zeros="bytes")),
    "W4A16 by activation": (compressed_config(), pack_quantised(4, 32, zeros="", in_order=False, with_order=True)),
    "W4A16 by output": (
        compressed_config(strategy="channel", group_size=None, symmetric=False),
        pack_quantised(4, WHOLE),
    ),
    "W4A16 short last group": (compressed_config(group_size=40), pack_quantised(4, 40)),
    "W8A16": (compressed_config(num_bits=8), pack_quantised(8, 32, zeros="")),
    "W2A16": (compressed_config(num_bits=2), pack_quantised(2, 32)),
    "W8A8": (compressed_config("int-quantized", num_bits=8, strategy="channel", group_size=None), int8(WHOLE)),
    "W8A8 zeros": (compressed_config("int-quantized", num_bits=8, strategy="channel"), int8(WHOLE, zeros=True)),
    "W8A8 groups": (compressed_config("naive-quantized", num_bits=8), int8(32)),
}


@pytest.mark.parametrize("form", FORMS)
def test_weights_are_those_of_the_definition(tmp_path: Path, form: str) -> None:
    settings, pack = FORMS[form]
    exact = write_quantised(tmp_path, TINY, settings, pack)
    checkpoint = open_checkpoint(tmp_path)
    assert len(checkpoint.tensor_names()) == len(exact)
    for name, theirs in (
        *((f"attention.{x}", f"self_attn.{x}_proj") for x in "qkvo"),
        *((f"mlp.{x}", f"mlp.{x}_proj") for x in ("gate", "up", "down")),
    ):
        expected = exact[f"model.layers.0.{theirs}.weight"]
        assert checkpoint.shape(f"layers.0.{name}.weight") == expected.shape
        np.testing.assert_array_equal(checkpoint.read(f"layers.0.{name}.weight"), expected)
    np.testing.assert_array_equal(checkpoint.read("lm_head.weight"), exact["lm_head.weight"])


def test_one_scale_for_a_whole_matrix(tmp_path: Path) -> None:
    for index, shape in enumerate(((), (1,), (1, 1))):

        def pack(size: tuple[int, ...], seed: int, shape: tuple[int, ...] = shape) -> tuple[Arrays, np.ndarray]:
            values = np.random.default_rng(seed).integers(-128, 128, size).astype(np.int8)
            parts = {"weight": values, "weight_scale": np.full(shape, 0.002, np.float32)}
            return parts, values.astype(np.float32) * np.float32(0.002)

        settings = compressed_config("int-quantized", num_bits=8, strategy="tensor", group_size=None)
        exact = write_quantised(tmp_path / str(index), TINY, settings, pack)
        found = open_checkpoint(tmp_path / str(index)).read("layers.0.mlp.up.weight")
        np.testing.assert_array_equal(found, exact["model.layers.0.mlp.up_proj.weight"])


def test_settings_where_older_exporters_wrote_them(tmp_path: Path) -> None:
    settings, pack = FORMS["gptq 8"]
    exact = write_quantised(tmp_path, TINY, settings, pack, quantization_config=None)
    with pytest.raises(UnsupportedModel, match="qweight"):
        open_checkpoint(tmp_path)
    (tmp_path / "quantize_config.json").write_text('{"bits": 8, "group_size": 16, "sym": true}')
    found = open_checkpoint(tmp_path).read("layers.0.attention.o.weight")
    np.testing.assert_array_equal(found, exact["model.layers.0.self_attn.o_proj.weight"])
    settings, pack = FORMS["W4A16"]
    write_quantised(tmp_path / "old", TINY, settings, pack, quantization_config=None, compression_config=settings)
    assert open_checkpoint(tmp_path / "old").stored_type("layers.0.mlp.up.weight") == "compressed-tensors 4-bit"


def test_a_sketch_without_weights_has_the_right_shapes(tmp_path: Path) -> None:
    """What `models check` opens of a model on a hub: a header with content, and zeros."""
    settings, pack = FORMS["W4A16 zeros"]
    write_quantised(tmp_path, TINY, settings, pack)
    whole, path = open_checkpoint(tmp_path), tmp_path / "model.safetensors"
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    path.write_bytes(data[:end] + bytes(len(data) - end))
    sketch = open_checkpoint(tmp_path)
    for name in whole.tensor_names():
        assert (sketch.shape(name), sketch.stored_bytes(name)) == (whole.shape(name), whole.stored_bytes(name))


def test_scales_of_a_quantised_cache_are_left_out(tmp_path: Path) -> None:
    settings, pack = FORMS["W8A8"]

    def with_cache_scales(shape: tuple[int, ...], seed: int) -> tuple[Arrays, np.ndarray]:
        parts, exact = pack(shape, seed)
        return parts | {"k_scale": np.ones(1, np.float32), "input_scale": np.ones(1, np.float32)}, exact

    write_quantised(tmp_path, TINY, settings | {"kv_cache_scheme": {"num_bits": 8}}, with_cache_scales)
    assert open_checkpoint(tmp_path).config.num_layers == 1


@pytest.mark.parametrize(
    ("named", "settings"),
    [
        ("quant_method = 'bitsandbytes'", {"quant_method": "bitsandbytes"}),
        ("quant_method = None", {"bits": 4}),
        ("awq, compressed-tensors, gptq are", {"quant_method": ["x"]}),
        ("version = 'gemv'", AWQ_SETTINGS | {"version": "gemv"}),
        ("version = 'marlin'", AWQ_SETTINGS | {"version": "marlin"}),
        ("zero_point = False", AWQ_SETTINGS | {"zero_point": False}),
        ("bits = 8", AWQ_SETTINGS | {"bits": 8}),
        ("bits = 5", GPTQ_SETTINGS | {"bits": 5}),
        ("checkpoint_format = 'marlin'", GPTQ_SETTINGS | {"checkpoint_format": "marlin"}),
        ("is_marlin_format", GPTQ_SETTINGS | {"is_marlin_format": True}),
        ("dynamic rule '.*down.*'", GPTQ_SETTINGS | {"dynamic": {".*down.*": {"bits": 8}}}),
        ("format = 'nvfp4-pack-quantized'", compressed_config("nvfp4-pack-quantized")),
        ("format = 'marlin-24'", compressed_config("marlin-24")),
        ("type = 'float'", compressed_config(type="float", num_bits=8)),
        ("num_bits = 3", compressed_config(num_bits=3)),
        ("strategy = 'block'", compressed_config(strategy="block")),
        ("sparsity_config", compressed_config() | {"sparsity_config": {"format": "sparse-24-bitmask"}}),
        ("transform_config", compressed_config() | {"transform_config": {"config_groups": {"R1": {}}}}),
    ],
)
def test_other_forms_are_refused_by_name(tmp_path: Path, named: str, settings: dict[str, Any]) -> None:
    write_quantised(tmp_path, TINY, settings, awq(32))
    with pytest.raises(UnsupportedModel) as caught:
        open_checkpoint(tmp_path)
    assert named in str(caught.value) and "config.json" in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        "gptq",
        AWQ_SETTINGS | {"group_size": 0},
        AWQ_SETTINGS | {"group_size": "32"},
        GPTQ_SETTINGS | {"bits": None},
        compressed_config() | {"config_groups": []},
        compressed_config() | {"config_groups": {"a": 1}},
    ],
)
def test_malformed_settings(tmp_path: Path, settings: Any) -> None:
    write_quantised(tmp_path, TINY, settings, awq(32))
    with pytest.raises(ModelFileError, match=r"config\.json"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("form", "change", "named"),
    [
        ("awq", {"qzeros": None}, "has no qzeros beside it"),
        ("awq", {"scales": np.ones((3, 3), np.float16)}, "scales has shape"),
        ("awq", {"qweight": np.ones((64, 8), np.int16)}, "qweight has type I16, expected I32"),
        ("awq", {"weight": np.ones((64, 64), np.float32)}, "weight, which is there as well"),
        ("awq", {"scales": np.ones((2, 64), np.int32)}, "scales has type I32"),
        ("gptq 4", {"g_idx": np.full(64, 2, np.int32)}, "g_idx names groups beyond the 2"),
        ("gptq 4", {"g_idx": np.full(64, -1, np.int32)}, "g_idx names groups beyond the 2"),
        ("gptq 4", {"g_idx": np.zeros(63, np.int32)}, "g_idx has shape"),
        ("gptq 3", {"qweight": np.ones((7, 64), np.int32)}, "3-bit fields do not fill"),
        ("gptq 4", {"qweight": np.ones((9, 64), np.int32)}, "groups of 32 do not divide"),
        ("W4A16", {"weight_shape": None}, "has no weight_shape beside it"),
        ("W4A16", {"weight_shape": np.array([64, 2**62])}, "weight_packed has shape"),
        ("W4A16", {"weight_shape": np.array([-64, 64])}, "weight_packed has shape"),
        ("W4A16", {"weight_shape": np.array([64])}, "weight_shape has shape"),
        ("W4A16", {"weight_scale": np.ones((64, 3), np.float16)}, "in groups of 32"),
        ("W4A16 zeros", {"weight_zero_point": np.ones((64, 2), np.int32)}, "weight_zero_point has shape"),
        ("W8A8", {"weight_scale": None}, "has no weight_scale beside it"),
        ("W8A8", {"weight_scale": np.full((64, 1), np.nan, np.float32)}, "weight_scale holds values that are not"),
    ],
)
def test_parts_that_do_not_fit(tmp_path: Path, form: str, change: Arrays, named: str) -> None:
    settings, pack = FORMS[form]

    def changed(shape: tuple[int, ...], seed: int) -> tuple[Arrays, np.ndarray]:
        parts, exact = pack(shape, seed)
        if shape == (64, 64):  # q and o
            parts = {name: array for name, array in (parts | change).items() if array is not None}
        return parts, exact

    write_quantised(tmp_path, TINY, settings, changed)
    with pytest.raises(ModelFileError) as caught:
        open_checkpoint(tmp_path).read("layers.0.attention.o.weight")
    assert named in str(caught.value) and "model.safetensors: tensor model.layers.0.self_attn." in str(caught.value)
