"""Quantised models against `transformers` with their exact dequantised weights, and the formats' own packages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.entrypoints.convert.converters.autoawq import AutoAWQConverter
from compressed_tensors.quantization import QuantizationScheme
from safetensors.torch import load_file, save_file
from test_against_transformers import all_logits, logits_of, oracle, some_ids
from transformers import CompressedTensorsConfig, LlamaForCausalLM

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
from tenuto.device import ReferenceDevice
from tenuto.model import load_model
from tiny_models import Arrays, TinyLlama, write_gguf, write_tokenizer_json

Arrangement = tuple[dict[str, Any], Any]

QUANTISED: dict[str, Arrangement] = {
    "awq": (
        {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True},
        lambda shape, seed: (awq_parts(d := draw(shape, 4, 32, seed)), d.exact()),
    ),
    "gptq": (
        {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True},
        lambda shape, seed: (gptq_parts(d := draw(shape, 4, 32, seed, in_order=False), 4), d.exact()),
    ),
    "W4A16": (
        compressed_config(),
        lambda shape, seed: (packed_parts(d := draw(shape, 4, 32, seed, symmetric=True), 4, zeros=""), d.exact()),
    ),
    "W8A8": (
        compressed_config("int-quantized", num_bits=8, strategy="channel", group_size=None),
        lambda shape, seed: (int8_parts(d := draw(shape, 8, 10_000, seed, symmetric=True)), d.exact()),
    ),
}


@pytest.mark.parametrize("form", QUANTISED)
def test_logits_of_quantised_directories_match_their_exact_weights(tmp_path: Path, form: str) -> None:
    tiny = TinyLlama(num_layers=1)
    exact = write_quantised(tmp_path, tiny, *QUANTISED[form])
    decoder = load_model(open_checkpoint(tmp_path), ReferenceDevice())
    ids = some_ids(40, tiny.vocab_size)
    torch.testing.assert_close(all_logits(decoder, ids), logits_of(oracle(tiny, exact), ids), atol=1e-4, rtol=0)


@pytest.mark.filterwarnings("ignore:You passed .quantization_config.")
@pytest.mark.parametrize("form", ["W4A16", "W8A8"])
def test_transformers_reads_the_same_directory_to_the_same_logits(tmp_path: Path, form: str) -> None:
    tiny, (settings, pack) = TinyLlama(num_layers=1), QUANTISED[form]

    def with_wide_scales(shape: tuple[int, ...], seed: int) -> tuple[Arrays, np.ndarray]:
        parts, exact = pack(shape, seed)  # transformers rounds weights to the type of their scales
        return parts | {"weight_scale": parts["weight_scale"].astype(np.float32)}, exact

    write_quantised(tmp_path, tiny, settings, with_wide_scales)
    whole = CompressedTensorsConfig(dequantize=True)
    model = LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32, quantization_config=whole).eval()
    decoder = load_model(open_checkpoint(tmp_path), ReferenceDevice())
    ids = some_ids(40, tiny.vocab_size)
    torch.testing.assert_close(all_logits(decoder, ids), logits_of(model, ids), atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", ["Q5_0", "Q5_1", "IQ4_NL", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"])
def test_logits_of_gguf_match_its_exact_values(tmp_path: Path, kind: str) -> None:
    """B70, B74."""
    tiny = TinyLlama(hidden_size=256, intermediate_size=256, num_layers=1, head_dim=64)
    exact = write_gguf(tmp_path / "tiny.gguf", tiny, tiny.weights(), kind)
    decoder = load_model(open_checkpoint(tmp_path / "tiny.gguf"), ReferenceDevice())
    ids = some_ids(40, tiny.vocab_size)
    torch.testing.assert_close(all_logits(decoder, ids), logits_of(oracle(tiny, exact), ids), atol=1e-4, rtol=0)


@pytest.mark.parametrize(("kind", "bits"), [("pack-quantized", 4), ("pack-quantized", 8), ("int-quantized", 8)])
@pytest.mark.parametrize("strategy", ["group", "channel"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_what_the_formats_own_package_compresses(
    tmp_path: Path, kind: str, bits: int, strategy: str, symmetric: bool
) -> None:
    args = {"num_bits": bits, "strategy": strategy, "symmetric": symmetric}
    settings = compressed_config(kind, group_size=16 if strategy == "group" else None, **args)
    group = settings["config_groups"]["group_0"]
    scheme = QuantizationScheme.model_validate(group)
    compressor = BaseCompressor.get_value_from_registry(kind)

    def pack(shape: tuple[int, ...], seed: int) -> tuple[Arrays, np.ndarray]:
        draw_ = np.random.default_rng(seed)
        columns = shape[1] // 16 if strategy == "group" else 1
        state = {
            "weight": torch.from_numpy(draw_.standard_normal(shape).astype(np.float32)),
            "weight_scale": torch.from_numpy(draw_.uniform(0.1, 0.5, (shape[0], columns)).astype(np.float32)),
        }
        if not symmetric:
            zeros = draw_.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), (shape[0], columns))
            state["weight_zero_point"] = torch.from_numpy(zeros.astype(np.int8))
        stored = compressor.compress(state, scheme)
        exact = compressor.decompress(stored, scheme)["weight"].numpy()
        return {name: tensor.numpy() for name, tensor in stored.items()}, exact

    exact = write_quantised(tmp_path, TinyLlama(num_layers=1), settings, pack)
    checkpoint = open_checkpoint(tmp_path)
    for ours, theirs in (("attention.k", "self_attn.k_proj"), ("mlp.down", "mlp.down_proj")):
        found = checkpoint.read(f"layers.0.{ours}.weight")
        np.testing.assert_array_equal(found, exact[f"model.layers.0.{theirs}.weight"])


def test_awq_is_what_another_reader_makes_of_it(tmp_path: Path) -> None:
    """The same files, converted by the compressed-tensors package, give the same weights."""
    tiny = TinyLlama(num_layers=1)
    settings, pack = QUANTISED["awq"]
    write_quantised(tmp_path / "awq", tiny, settings, pack)
    tensors = load_file(tmp_path / "awq" / "model.safetensors")
    converted = AutoAWQConverter(group_size=32).process(dict(tensors))
    write_quantised(tmp_path / "converted", tiny, compressed_config(symmetric=False), pack)
    save_file(converted, tmp_path / "converted" / "model.safetensors")
    write_tokenizer_json(tmp_path / "converted")
    one, other = open_checkpoint(tmp_path / "awq"), open_checkpoint(tmp_path / "converted")
    assert one.tensor_names() and set(one.tensor_names()) == set(other.tensor_names())
    for name in one.tensor_names():
        np.testing.assert_array_equal(one.read(name), other.read(name))
