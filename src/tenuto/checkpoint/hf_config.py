"""config.json -> ModelConfig. A key that changes the arithmetic in a way we do not do is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tenuto.checkpoint.config import ModelConfig
from tenuto.checkpoint.families import Family
from tenuto.checkpoint.families.settings import refuse_hf_extras, same_layers
from tenuto.checkpoint.hf_rope import read_rope
from tenuto.checkpoint.rope import LinearScaling, RopeConfig, YarnScaling
from tenuto.checkpoint.values import Values
from tenuto.errors import ModelFileError


def text_settings(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of the text model: multimodal configs wrap them, some beside the wrapper's own token ids."""
    inner = values.get("text_config")
    return {**values, **inner} if isinstance(inner, dict) else values


def read_config(path: Path, family: Family, settings: Mapping[str, Any], *, has_head: bool) -> ModelConfig:
    """Neutral config, without the special token ids. `has_head`: the weights contain `lm_head.weight`.

    Which head: one in the file is used, even if `tie_word_embeddings` is true (transformers ties then, and
    drops the stored head); without one the embedding is the head, unless the config says in so many words that
    the head is its own (transformers would make up a random one).

    Raises:
        ModelFileError: a key is missing or absurd, or the promised head is not there.
        UnsupportedModel: RoPE schemes or other arithmetic we do not do; names every such key.
    """
    given = {key: value for key, value in text_settings(settings).items() if value is not None}
    values = Values(path, {**family.hf_defaults, **given})
    if not has_head and given.get("tie_word_embeddings") is False:
        raise ModelFileError(f"{path}: tie_word_embeddings is false, but the weights contain no lm_head.weight")
    refuse_hf_extras(values)
    num_heads = values.integer("num_attention_heads")
    hidden_size = values.integer("hidden_size")
    num_layers = values.integer("num_hidden_layers")
    rope = _rope(values)
    base = ModelConfig(
        family=family.name,
        vocab_size=values.integer("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=values.integer("intermediate_size"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=values.integer("num_key_value_heads", num_heads),
        head_dim=values.integer("head_dim", hidden_size // num_heads if num_heads > 0 else 0),
        rms_norm_eps=values.number("rms_norm_eps", 1e-6),
        ropes=(rope,),
        layers=same_layers(path, num_layers),
        max_model_tokens=_stretched(rope, values.integer("max_position_embeddings", 2048)),
        tie_embeddings=not has_head,
    )
    config = family.complete_hf(values, base)
    values.finish()
    return config.check(path)


def _rope(values: Values) -> RopeConfig:
    parameters = values.get("rope_parameters") or values.get("rope_scaling")
    if isinstance(parameters, dict) and any(isinstance(value, dict) for value in parameters.values()):
        parameters = None  # one for each kind of layer: the family reads them
    return read_rope(values, parameters, values.number("rope_theta", 10000.0))


def _stretched(rope: RopeConfig, max_position_embeddings: int) -> int:
    """The context with scaling: these two schemes leave `max_position_embeddings` at the unscaled length."""
    match rope.scaling:
        case LinearScaling(factor=factor):
            return int(max_position_embeddings * factor) if 0 < factor < 1e6 else max_position_embeddings
        case YarnScaling(factor=factor, original_tokens=original):
            return max(max_position_embeddings, int(original * factor) if 0 < factor < 1e6 else 0)
        case _:
            return max_position_embeddings
