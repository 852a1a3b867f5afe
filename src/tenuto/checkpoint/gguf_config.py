"""GGUF metadata -> ModelConfig and tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tenuto.checkpoint.config import GGUFTokenizer, ModelConfig, TokenizerFiles
from tenuto.checkpoint.families import Family
from tenuto.checkpoint.families.settings import same_layers
from tenuto.checkpoint.rope import DividedFrequencies, LinearScaling, RopeConfig, RopeScaling, YarnScaling
from tenuto.checkpoint.values import Values
from tenuto.checkpoint.weight_file import StoredTensor
from tenuto.errors import ModelFileError

# Keys (after `<architecture>.`) that change the arithmetic of any family, and the values under which they do not.
_NEUTRAL_VALUES: dict[str, tuple[object, ...]] = {
    "attention.causal": (True,),
    "attention.clamp_kqv": (0.0,),
    "attention.scale": (0.0,),
    "attn_logit_softcapping": (0.0,),
    "final_logit_softcapping": (0.0,),
    "logit_scale": (0.0, 1.0),
    "residual_scale": (0.0, 1.0),
    "embedding_scale": (0.0, 1.0),
    "rope.scale": (0.0, 1.0),
}


def read_config(
    path: Path,
    family: Family,
    metadata: Mapping[str, Any],
    tensors: Mapping[str, StoredTensor],
    rope_divisors: tuple[float, ...] | None,
) -> ModelConfig:
    """Neutral config of a file, checked.

    Args:
        tensors: by neutral name; they tell the vocabulary and whether a head exists.
        rope_divisors: the values of the tensor `rope_freqs`, if there is one.

    Raises:
        ModelFileError: a key is missing or absurd.
        UnsupportedModel: keys ask for arithmetic that we do not do; names every such key.
    """
    values = Values(path, metadata, f"{metadata.get('general.architecture')}.")
    for key, neutral in _NEUTRAL_VALUES.items():
        values.only(key, *neutral)
    if not family.gguf_stacked_experts:
        values.only("expert_count", 0)
    num_heads = values.integer("attention.head_count")
    hidden_size = values.integer("embedding_length")
    head_dim = values.integer("attention.key_length", hidden_size // num_heads if num_heads > 0 else 0)
    for key in ("attention.value_length", "rope.dimension_count"):
        if (size := values.integer(key, head_dim)) != head_dim:
            values.refuse(f"{values.prefix}{key} = {size} differs from the head size {head_dim}")
    if "embed.weight" not in tensors:
        raise ModelFileError(f"{path}: tensor token_embd.weight is missing")
    num_layers = values.integer("block_count")
    scaling = _scaling(values) if rope_divisors is None else DividedFrequencies(divisors=rope_divisors)
    base = ModelConfig(
        family=family.name,
        vocab_size=tensors["embed.weight"].shape[0],
        hidden_size=hidden_size,
        intermediate_size=values.integer("feed_forward_length"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=values.integer("attention.head_count_kv", num_heads),
        head_dim=head_dim,
        rms_norm_eps=values.number("attention.layer_norm_rms_epsilon"),
        ropes=(RopeConfig(theta=values.number("rope.freq_base", 10000.0), scaling=scaling),),
        layers=same_layers(path, num_layers),
        max_model_tokens=values.integer("context_length"),
        # A head in the file is used; without one the embedding is the head. GGUF has no flag for it.
        tie_embeddings="lm_head.weight" not in tensors,
        # Nor for biases: a file that has them in its first layer has them in all.
        qkv_bias="layers.0.attention.q.bias" in tensors,
        output_bias="layers.0.attention.o.bias" in tensors,
        mlp_bias="layers.0.mlp.gate.bias" in tensors,
        bos_id=metadata.get("tokenizer.ggml.bos_token_id"),
        eos_ids=_eos_ids(Values(path, metadata)),
    )
    config = family.complete_gguf(values, base)
    values.finish()
    return config.check(path)


def _scaling(values: Values) -> RopeScaling | None:
    scheme = values.text("rope.scaling.type", "none")
    factor = values.number("rope.scaling.factor", values.number("rope.scale_linear", 0.0))
    if factor == 0.0 or (scheme == "none" and factor == 1.0):
        scheme = "none" if scheme == "linear" else scheme
    elif scheme == "none":
        scheme = "linear"  # what files said before the scheme had a key
    if scheme == "none":
        return None
    if scheme == "linear":
        return LinearScaling(factor=factor)
    if scheme != "yarn":
        values.refuse(f"{values.prefix}rope.scaling.type = {scheme!r:.80} is not supported (linear and yarn are)")
        return None
    for key in ("yarn_ext_factor", "yarn_attn_factor", "attn_factor"):
        values.only(f"rope.scaling.{key}", 1.0)
    values.only("rope.scaling.yarn_log_multiplier", 0.0)
    stretched = values.integer("context_length")
    return YarnScaling(
        factor=factor,
        original_tokens=values.integer(
            "rope.scaling.original_context_length", int(stretched / factor) if factor > 0 else stretched
        ),
        beta_fast=values.number("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=values.number("rope.scaling.yarn_beta_slow", 1.0),
    )


def _eos_ids(metadata: Values) -> tuple[int, ...]:
    keys = (f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom"))
    return tuple(sorted({metadata.integer(key) for key in keys if metadata.has(key)}))


def read_tokenizer(path: Path, metadata: Mapping[str, Any], config: ModelConfig) -> TokenizerFiles:
    """The tokenizer stored in the file.

    Raises:
        ModelFileError: none is stored, or its lists do not match the vocabulary.
    """
    values = Values(path, metadata, "tokenizer.ggml.")
    ends = values.flag("add_eos_token", False) and values.has("eos_token_id")
    return TokenizerFiles(
        gguf=read_vocabulary(path, metadata, config.vocab_size),
        bos_id=config.bos_id,
        eos_ids=config.eos_ids,
        add_bos=values.flag("add_bos_token", values.text("model") == "llama"),
        chat_template=Values(path, metadata).text("tokenizer.chat_template", "") or None,
        end_id=values.integer("eos_token_id") if ends else None,
    )


def read_vocabulary(path: Path, metadata: Mapping[str, Any], vocab_size: int) -> GGUFTokenizer:
    """The tokens and rules alone. Raises as `read_tokenizer`."""
    values = Values(path, metadata, "tokenizer.ggml.")
    kind = values.text("model")
    tokens = values.items("tokens")
    types = values.items("token_type", [1] * len(tokens))
    scores = values.items("scores", [])
    if len(tokens) > vocab_size or len(types) != len(tokens) or len(scores) not in (0, len(tokens)):
        raise ModelFileError(
            f"{path}: {len(tokens)} tokens, {len(types)} token types and {len(scores)} scores "
            f"do not fit a vocabulary of {vocab_size}"
        )
    if not all(isinstance(t, str) for t in tokens) or not all(type(t) is int for t in types):
        raise ModelFileError(f"{path}: tokenizer.ggml.tokens must be texts, and token_type numbers")
    charsmap = values.items("precompiled_charsmap", [])
    return GGUFTokenizer(
        kind=kind,
        pre=values.text("pre", "default"),
        tokens=tokens,
        token_types=types,
        merges=values.items("merges", []),
        scores=scores,
        add_space_prefix=values.flag("add_space_prefix", kind in ("llama", "t5")),
        remove_extra_whitespaces=values.flag("remove_extra_whitespaces", kind == "t5"),
        charsmap=bytes(c & 0xFF for c in charsmap),
        path=path,
    )
