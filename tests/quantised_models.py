"""Quantised checkpoints, packed element by element from the formats' public definitions, and what they stand for."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tiny_models import Arrays, TinyLlama, write_tokenizer_json

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


@dataclass
class Drawn:
    """Whole numbers, scales and zeros of a matrix [out, in], whose inputs share groups."""

    values: np.ndarray  # int [out, in], 0 .. 2 ** bits - 1
    scales: np.ndarray  # float [out, groups]
    zeros: np.ndarray  # int [out, groups], 0 .. 2 ** bits - 1
    group_of: np.ndarray  # int [in]

    def exact(self) -> np.ndarray:
        """float32 [out, in], one element at a time."""
        out = np.empty(self.values.shape, np.float32)
        for o, i in np.ndindex(*out.shape):
            g = self.group_of[i]
            out[o, i] = np.float32(int(self.values[o, i]) - int(self.zeros[o, g])) * np.float32(self.scales[o, g])
        return out


def draw(
    shape: tuple[int, ...], bits: int, group_size: int, seed: int, *, symmetric: bool = False, in_order: bool = True
) -> Drawn:
    random = np.random.default_rng(seed)
    num_out, num_in = shape
    groups = -(-num_in // group_size)
    group_of = np.arange(num_in) // group_size
    size = 2.0 / 2**bits / num_in**0.5
    zeros = random.integers(0, 2**bits, (num_out, groups))
    return Drawn(
        values=random.integers(0, 2**bits, shape),
        scales=(random.uniform(0.5, 1.5, (num_out, groups)) * size).astype(np.float16),
        zeros=np.full_like(zeros, 2 ** (bits - 1)) if symmetric else zeros,
        group_of=group_of if in_order else random.permutation(group_of),
    )


def packed(fields: list[int], bits: int) -> list[int]:
    """Fields one after the other from the lowest bit on, cut into words of 32 bits."""
    number = sum(field << (bits * index) for index, field in enumerate(fields))
    return [number >> (32 * word) & 0xFFFFFFFF for word in range(-(-len(fields) * bits // 32))]


def as_int32(words: list[list[int]]) -> np.ndarray:
    return np.array(words, np.uint32).view(np.int32)


def awq_parts(drawn: Drawn) -> Arrays:
    def pack(rows: np.ndarray) -> np.ndarray:
        return as_int32(
            [[packed([int(row[at + o]) for o in AWQ_ORDER], 4)[0] for at in range(0, len(row), 8)] for row in rows]
        )

    return {
        "qweight": pack(drawn.values.T),
        "qzeros": pack(drawn.zeros.T),
        "scales": np.ascontiguousarray(drawn.scales.T),
    }


def gptq_parts(drawn: Drawn, bits: int, *, v2: bool = False, with_order: bool = True) -> Arrays:
    zeros = drawn.zeros if v2 else (drawn.zeros - 1) % 2**bits
    parts = {
        "qweight": np.ascontiguousarray(as_int32([packed([int(v) for v in row], bits) for row in drawn.values]).T),
        "qzeros": as_int32([packed([int(v) for v in column], bits) for column in zeros.T]),
        "scales": np.ascontiguousarray(drawn.scales.T),
    }
    return parts | ({"g_idx": drawn.group_of.astype(np.int32)} if with_order else {})


def packed_parts(drawn: Drawn, bits: int, *, zeros: str = "packed", with_order: bool = False) -> Arrays:
    """compressed-tensors' `pack-quantized`. zeros: "packed", "bytes" or "" for a symmetric matrix."""
    half = 2 ** (bits - 1)
    parts = {
        "weight_packed": as_int32([packed([int(v) for v in row], bits) for row in drawn.values]),
        "weight_scale": drawn.scales,
        "weight_shape": np.array(drawn.values.shape, np.int64),
    }
    if zeros == "packed":
        columns = [packed([int(v) for v in column], bits) for column in drawn.zeros.T]
        parts["weight_zero_point"] = np.ascontiguousarray(as_int32(columns).T)
    elif zeros == "bytes":
        parts["weight_zero_point"] = (drawn.zeros - half).astype(np.int8)
    return parts | ({"weight_g_idx": drawn.group_of.astype(np.int32)} if with_order else {})


def int8_parts(drawn: Drawn, *, zeros: bool = False) -> Arrays:
    """compressed-tensors' `int-quantized`."""
    parts: Arrays = {"weight": (drawn.values - 128).astype(np.int8), "weight_scale": drawn.scales}
    return parts | ({"weight_zero_point": (drawn.zeros - 128).astype(np.int8)} if zeros else {})


def compressed_config(kind: str = "pack-quantized", groups: int = 1, **weights: Any) -> dict[str, Any]:
    """A `quantization_config` as llm-compressor writes it."""
    args = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32, "dynamic": False}
    group = {"targets": ["Linear"], "weights": args | weights, "input_activations": None, "output_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": kind,
        "quantization_status": "compressed",
        "config_groups": {f"group_{index}": group for index in range(groups)},
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
    }


def write_quantised(
    directory: Path,
    tiny: TinyLlama,
    settings: dict[str, Any],
    pack: Callable[[tuple[int, ...], int], tuple[Arrays, np.ndarray]],
    **config: Any,
) -> Arrays:
    """A directory whose layers' matrices are quantised; returns the weights it stands for, by plain name.

    Args:
        pack: shape and seed of a matrix -> its parts, by last part of their names, and what they stand for.
        config: overrides keys of config.json.
    """
    directory.mkdir(parents=True, exist_ok=True)
    stored, exact = Arrays(), Arrays()
    for seed, (name, values) in enumerate(tiny.weights().items()):
        module = name.removesuffix(".weight")
        if not name.endswith("_proj.weight"):
            stored[name] = exact[name] = values
            continue
        parts, exact[name] = pack(values.shape, seed)
        stored |= {f"{module}.{part}": array for part, array in parts.items()}
    save_file(stored, str(directory / "model.safetensors"))
    (directory / "config.json").write_text(json.dumps(tiny.hf_config() | {"quantization_config": settings} | config))
    write_tokenizer_json(directory)
    return exact
