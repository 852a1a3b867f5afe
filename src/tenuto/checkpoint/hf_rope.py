"""Rotary settings of config.json: `rope_parameters`, the older `rope_scaling`, and both spellings of the scheme."""

from __future__ import annotations

from typing import Any

from tenuto.checkpoint.rope import LinearScaling, Llama3Scaling, RopeConfig, RopeScaling, YarnScaling
from tenuto.checkpoint.values import Values
from tenuto.errors import ModelFileError

_KNOWN = {
    "default": frozenset[str](),
    "linear": frozenset({"factor"}),
    "llama3": frozenset({"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}),
    "yarn": frozenset(
        {"factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "attention_factor", "truncate"}
    ),
}
_EVERYWHERE = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}


def read_rope(values: Values, parameters: Any, default_theta: float) -> RopeConfig:
    """One table's settings. An unknown scheme, or a key that its scheme does not know, is refused by name.

    Args:
        parameters: the object that holds them, or None.

    Raises:
        ModelFileError: not an object, or a number is missing or malformed.
    """
    if parameters is None:
        return RopeConfig(theta=default_theta)
    if not isinstance(parameters, dict):
        raise ModelFileError(f"{values.path}: the RoPE parameters are {parameters!r:.80}, expected an object")
    rope = Values(values.path, parameters)
    theta = rope.number("rope_theta", default_theta)
    named = [name for name in (parameters.get("rope_type"), parameters.get("type")) if name is not None]
    scheme = named[0] if named else "default" if not parameters.get("factor") else "linear"
    if len(set(map(str, named))) > 1 or scheme not in _KNOWN:
        values.refuse(f"RoPE scheme {' / '.join(map(repr, named))[:80]} is not supported ({', '.join(_KNOWN)} are)")
        return RopeConfig(theta=theta)
    keys = {key for key, value in parameters.items() if value is not None}
    if strange := sorted(keys - _KNOWN[scheme] - _EVERYWHERE):
        values.refuse(f"RoPE scheme {scheme!r} with {', '.join(strange)[:80]} is not supported")
    if rope.number("partial_rotary_factor", 1.0) != 1:
        values.refuse(f"partial_rotary_factor = {parameters['partial_rotary_factor']!r:.80} is not supported")
    return RopeConfig(theta=theta, scaling=_scaling(scheme, rope, values))


def _scaling(scheme: str, rope: Values, values: Values) -> RopeScaling | None:
    if scheme == "default":
        return None
    factor = rope.number("factor")
    if scheme == "linear":
        return LinearScaling(factor=factor)
    original = rope.integer("original_max_position_embeddings", values.integer("max_position_embeddings", 2048))
    if scheme == "llama3":
        return Llama3Scaling(
            factor=factor,
            low_freq_factor=rope.number("low_freq_factor"),
            high_freq_factor=rope.number("high_freq_factor"),
            original_tokens=original,
        )
    return YarnScaling(
        factor=factor,
        original_tokens=original,
        beta_fast=rope.number("beta_fast", 32.0),
        beta_slow=rope.number("beta_slow", 1.0),
        truncate=rope.flag("truncate", True),
        attention_factor=rope.number("attention_factor") if rope.has("attention_factor") else None,
    )
