"""`quantization_config` -> scheme. What would change the arithmetic in a way we do not do is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tenuto.checkpoint.json_file import read_json
from tenuto.checkpoint.quantised.by_input import Awq, Gptq
from tenuto.checkpoint.quantised.by_output import CompressedTensors
from tenuto.checkpoint.quantised.scheme import Scheme
from tenuto.checkpoint.values import Values
from tenuto.errors import ModelFileError

_PACKED_BITS = (2, 4, 8)
_CT_FORMATS = ("int-quantized", "naive-quantized", "pack-quantized", "dense", "mixed-precision")
_CT_STRATEGIES = ("tensor", "channel", "group")
_MAX_CONFIG_GROUPS = 1000


def read_scheme(path: Path, config: Mapping[str, Any]) -> Scheme | None:
    """The scheme of a directory's weights, or None if they are not quantised.

    Args:
        config: of config.json, with the text model's settings on top.

    Raises:
        ModelFileError: a key is missing or malformed.
        UnsupportedModel: a scheme or form of one that is not read; names it.
    """
    file, settings = path / "config.json", config.get("quantization_config") or config.get("compression_config")
    if not settings:  # where older exporters of GPTQ wrote it
        file = path / "quantize_config.json"
        settings = read_json(file, optional=True) or None
        if settings is None:
            return None
        settings = {"quant_method": "gptq", **settings}
    if not isinstance(settings, dict):
        raise ModelFileError(f"{file}: quantization_config is {settings!r:.80}, expected an object")
    values = Values(file, settings)
    readers = {"awq": _awq, "compressed-tensors": _compressed_tensors, "gptq": _gptq}
    method = settings.get("quant_method", "compressed-tensors" if "config_groups" in settings else None)
    reader = readers.get(method) if isinstance(method, str) else None
    if reader is None:
        values.refuse(f"quantization_config: quant_method = {method!r:.80} is not supported ({', '.join(readers)} are)")
    scheme = reader(values) if reader is not None else None
    values.finish()
    return scheme


def _awq(values: Values) -> Scheme:
    version = values.text("version", "gemm")
    if version.lower() != "gemm":
        values.refuse(f"quantization_config: AWQ's version = {version!r:.80} is not supported (gemm is)")
    _only(values, "AWQ", "bits", 4)
    _only(values, "AWQ", "w_bit", 4)
    _only(values, "AWQ", "zero_point", True)
    size = values.integer("group_size", values.integer("q_group_size", 128))
    return Awq(_group_size(values, size))


def _gptq(values: Values) -> Scheme:
    _only(values, "GPTQ", "bits", 2, 3, 4, 8)
    formats = ("gptq", "gptq_v2")
    _only(values, "GPTQ", "checkpoint_format", *formats)
    _only(values, "GPTQ", "format", *formats)
    _only(values, "GPTQ", "is_marlin_format", False)
    _only(values, "GPTQ", "pack_dtype", "int32")
    for rule, change in _object(values, "dynamic").items():
        if change and not rule.startswith("-"):  # those leave modules unquantised, as their tensors say
            values.refuse(f"quantization_config: GPTQ's dynamic rule {rule!r:.80} is not supported")
    stored_as = values.get("checkpoint_format") or values.get("format") or "gptq"
    size = values.integer("group_size", -1)
    return Gptq(values.integer("bits"), _group_size(values, size), zeros_less_one=stored_as == "gptq")


def _compressed_tensors(values: Values) -> Scheme:
    # The key-value cache keeps the model's own precision or the engine's: that scheme says nothing about weights.
    _only(values, "compressed-tensors'", "format", *_CT_FORMATS)
    for key in ("sparsity_config", "transform_config"):
        settings = _object(values, key)
        if settings and settings.get("format") != "dense":
            values.refuse(f"quantization_config: compressed-tensors' {key} is not supported")
    groups = _object(values, "config_groups")
    if len(groups) > _MAX_CONFIG_GROUPS:
        raise ModelFileError(f"{values.path}: {len(groups)} config_groups, more than {_MAX_CONFIG_GROUPS}")
    bits: set[int] = set()
    sizes: set[int] = set()
    for name, group in groups.items():
        if not isinstance(group, dict):
            raise ModelFileError(f"{values.path}: config_groups' {name:.80} is {group!r:.80}, expected an object")
        inner = Values(values.path, group)
        _only(inner, "compressed-tensors'", "format", *_CT_FORMATS)
        inner.finish()
        if group.get("weights") is not None:
            num_bits, size = _ct_weights(Values(values.path, _object(inner, "weights")))
            bits.add(num_bits)
            sizes |= {size} if size else set()
    return CompressedTensors(tuple(sorted(bits)), tuple(sorted(sizes)))


def _ct_weights(values: Values) -> tuple[int, int | None]:
    """Bits and group size of one group's weights."""
    _only(values, "compressed-tensors'", "type", "int")
    _only(values, "compressed-tensors'", "num_bits", *_PACKED_BITS)
    _only(values, "compressed-tensors'", "strategy", *_CT_STRATEGIES)
    _only(values, "compressed-tensors'", "block_structure")
    values.finish()
    size = values.integer("group_size", -1)
    return values.integer("num_bits", 8), _group_size(values, size)


def _only(values: Values, scheme: str, key: str, *known: object) -> None:
    """Refuse any other value of a key that may be absent."""
    value = values.get(key)
    if value is not None and not any(type(value) is type(one) and value == one for one in known):
        named = f" ({', '.join(map(str, known))} are)" if known else ""
        values.refuse(f"quantization_config: {scheme} {key} = {value!r:.80} is not supported{named}")


def _object(values: Values, key: str) -> dict[str, Any]:
    value = values.get(key)
    if value is not None and not isinstance(value, dict):
        raise ModelFileError(f"{values.path}: {key} is {value!r:.80}, expected an object")
    return value or {}


def _group_size(values: Values, size: int) -> int | None:
    if size == -1:
        return None
    if not 0 < size < 2**31:
        raise ModelFileError(f"{values.path}: group_size is {size}, expected a positive number or -1")
    return size
