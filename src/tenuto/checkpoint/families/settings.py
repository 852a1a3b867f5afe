"""Settings that several families share: activation, windows by layer, biases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tenuto.checkpoint.config import MAX_LAYERS, LayerConfig, ModelConfig
from tenuto.checkpoint.values import Values
from tenuto.errors import ModelFileError

_FULL, _SLIDING = "full_attention", "sliding_attention"


def refuse_hf_extras(values: Values) -> None:
    """Keys of config.json that would change the arithmetic of any family."""
    values.only("attn_logit_softcapping")
    values.only("final_logit_softcapping")
    values.only("partial_rotary_factor", 1)
    values.only("is_causal", True)
    values.only("use_bidirectional_attention", False)


def require_silu(values: Values) -> None:
    values.only("hidden_act", "silu", "swish")


def no_experts(values: Values) -> None:
    """Families without a mixture: a config that asks for one is refused."""
    for key in ("num_experts", "num_local_experts"):
        values.only(key, 0)


def hf_windows(values: Values, config: ModelConfig, is_windowed: Callable[[int], bool]) -> ModelConfig:
    """Give layers their window: those that `layer_types` names; without it, those that `is_windowed` picks."""
    types = values.get("layer_types")
    if types is None:
        windowed = [is_windowed(index) for index in range(config.num_layers)]
    else:
        types = values.items("layer_types")
        if len(types) != config.num_layers:
            values.refuse(f"layer_types names {len(types)} layers of {config.num_layers}")
        if unknown := sorted({repr(kind)[:40] for kind in types if kind not in (_FULL, _SLIDING)}):
            values.refuse(f"layer_types names {', '.join(unknown)}; known are {_FULL} and {_SLIDING}")
        windowed = [kind == _SLIDING for kind in types]
    if not any(windowed):
        return config
    window = values.integer("sliding_window")
    return with_windows(config, [window if flag else None for flag in windowed])


def no_hf_windows(values: Values) -> None:
    """Families without windows: a config that asks for one is refused."""
    if values.has("sliding_window") and values.get("use_sliding_window") is not False:
        values.refuse(f"sliding_window = {values.get('sliding_window')!r:.80} is not supported in this family")
    if any(kind != _FULL for kind in values.items("layer_types", [])):
        values.refuse(f"layer_types names layers other than {_FULL}, which is not supported in this family")


def with_windows(config: ModelConfig, windows: list[int | None]) -> ModelConfig:
    layers = tuple(replace(layer, window=window) for layer, window in zip(config.layers, windows, strict=False))
    return replace(config, layers=layers)


def gguf_window(values: Values) -> int | None:
    """The window a GGUF file names, or None; 0 means none."""
    return values.integer("attention.sliding_window", 0) or None


def same_layers(path: Path, num_layers: int) -> tuple[LayerConfig, ...]:
    """Raises ModelFileError for a number of layers that no model has, before anything is made for each."""
    if not 0 < num_layers <= MAX_LAYERS:
        raise ModelFileError(f"{path}: the model has {num_layers} layers; 1 to {MAX_LAYERS} are possible")
    return (LayerConfig(),) * num_layers
