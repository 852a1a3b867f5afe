"""config.json -> ModelConfig. A key that changes the arithmetic in a way we do not do is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tenuto.checkpoint.config import ModelConfig
from tenuto.checkpoint.families import Family
from tenuto.errors import ModelFileError, UnsupportedModel

# Keys and the values under which they change nothing (absent and null always do).
_NEUTRAL_VALUES: dict[str, tuple[object, ...]] = {
    "hidden_act": ("silu", "swish"),
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "partial_rotary_factor": (1, 1.0),
    "quantization_config": (),
    "attn_logit_softcapping": (),
    "final_logit_softcapping": (),
    "num_local_experts": (0,),
    "is_causal": (True,),
}


def read_config(path: Path, family: Family, values: Mapping[str, Any], *, has_head: bool) -> ModelConfig:
    """Neutral config, without the special token ids. `has_head`: the weights contain `lm_head.weight`.

    Which head: one in the file is used, even if `tie_word_embeddings` is true (transformers ties then, and
    drops the stored head); without one the embedding is the head, unless the config says in so many words that
    the head is its own (transformers would make up a random one).

    Raises:
        ModelFileError: a key is missing or absurd, or the promised head is not there.
        UnsupportedModel: a sliding window, RoPE scaling or other arithmetic we do not do; names the key.
    """
    _refuse_unsupported(path, values)
    if not has_head and values.get("tie_word_embeddings") is False:
        raise ModelFileError(f"{path}: tie_word_embeddings is false, but the weights contain no lm_head.weight")
    num_heads = _int(path, values, "num_attention_heads")
    hidden_size = _int(path, values, "hidden_size")
    return ModelConfig(
        family=family.name,
        vocab_size=_int(path, values, "vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=_int(path, values, "intermediate_size"),
        num_layers=_int(path, values, "num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=_int(path, values, "num_key_value_heads", num_heads),
        head_dim=_int(path, values, "head_dim", hidden_size // num_heads if num_heads > 0 else 0),
        rms_norm_eps=_float(path, values, "rms_norm_eps", 1e-6),
        rope_theta=_rope_theta(path, values),
        max_model_tokens=_int(path, values, "max_position_embeddings", 2048),
        tie_embeddings=not has_head,
    ).check(path)


def _refuse_unsupported(path: Path, values: Mapping[str, Any]) -> None:
    for key, neutral in _NEUTRAL_VALUES.items():
        if (value := values.get(key)) is not None and value not in neutral:
            raise UnsupportedModel(f"{path}: {key} = {value!r:.80} is not supported yet")
    if values.get("sliding_window") is not None and values.get("use_sliding_window", True):
        raise UnsupportedModel(f"{path}: sliding_window = {values['sliding_window']!r:.80} is not supported yet")
    if any(kind != "full_attention" for kind in values.get("layer_types") or ()):
        raise UnsupportedModel(f"{path}: layer_types names layers other than full_attention, not supported yet")
    for key in ("rope_scaling", "rope_parameters"):
        _refuse_rope_scaling(path, key, values.get(key))


def _refuse_rope_scaling(path: Path, key: str, rope: object) -> None:
    """Both spellings of the scheme's name, `rope_type` and `type`; any scheme but `default` is refused."""
    if rope is None:
        return
    if not isinstance(rope, dict):
        raise ModelFileError(f"{path}: {key} is {rope!r:.80}, expected an object")
    schemes = {rope[name] for name in ("rope_type", "type") if isinstance(rope.get(name), str)}
    scales = set(rope) - {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
    if schemes - {"default"} or scales or rope.get("partial_rotary_factor", 1) != 1:
        raise UnsupportedModel(f"{path}: {key} = {rope!r:.120}: RoPE scaling is not supported yet")


def _rope_theta(path: Path, values: Mapping[str, Any]) -> float:
    rope = values.get("rope_parameters") or values.get("rope_scaling") or {}
    return _float(path, {"rope_theta": rope.get("rope_theta", values.get("rope_theta"))}, "rope_theta", 10000.0)


def _int(path: Path, values: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = values.get(key)
    value = default if value is None else value
    if type(value) is not int:
        raise ModelFileError(f"{path}: {key} is {value!r:.80}, expected a whole number")
    return value


def _float(path: Path, values: Mapping[str, Any], key: str, default: float) -> float:
    value = values.get(key)
    value = default if value is None else value
    if type(value) not in (int, float):
        raise ModelFileError(f"{path}: {key} is {value!r:.80}, expected a number")
    return float(value)
