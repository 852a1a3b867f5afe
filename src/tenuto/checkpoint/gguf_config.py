"""GGUF metadata -> ModelConfig and tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from tenuto.checkpoint.config import GGUFTokenizer, ModelConfig, TokenizerFiles
from tenuto.checkpoint.families import Family
from tenuto.checkpoint.gguf_format import GGUFTensor
from tenuto.errors import ModelFileError, UnsupportedModel

T = TypeVar("T")
_REQUIRED: Any = object()

# Keys (after `<architecture>.`) that change the arithmetic, and the values under which they change nothing.
_NEUTRAL_VALUES: dict[str, tuple[object, ...]] = {
    "rope.scaling.type": ("none",),
    "rope.scaling.factor": (0.0, 1.0),
    "rope.scale": (0.0, 1.0),
    "rope.scale_linear": (0.0, 1.0),
    "attention.sliding_window": (0,),
    "attention.causal": (True,),
    "expert_count": (0,),
    "attention.clamp_kqv": (0.0,),
    "attention.scale": (0.0,),
    "attn_logit_softcapping": (0.0,),
    "final_logit_softcapping": (0.0,),
    "logit_scale": (0.0, 1.0),
    "residual_scale": (0.0, 1.0),
    "embedding_scale": (0.0, 1.0),
}


class _Metadata:
    """Typed look-ups that name file and key when the value is missing or of another type."""

    def __init__(self, path: Path, values: Mapping[str, Any]) -> None:
        self._path = path
        self._values = values

    def get(self, key: str, kind: type[T], default: T = _REQUIRED) -> T:
        value = self._values.get(key, default)
        if value is _REQUIRED:
            raise ModelFileError(f"{self._path}: metadata {key} is missing")
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            if kind is int and isinstance(value, list):
                raise UnsupportedModel(f"{self._path}: {key} differs by layer, which is not supported yet")
            raise ModelFileError(f"{self._path}: metadata {key} is {value!r:.80}, expected {kind.__name__}")
        return value


def read_config(
    path: Path, family: Family, values: Mapping[str, Any], tensors: Mapping[str, GGUFTensor]
) -> ModelConfig:
    """Neutral config of a file, checked. `tensors` (by neutral name) tells the vocabulary and whether a head exists.

    Raises:
        ModelFileError: a key is missing or absurd.
        UnsupportedModel: a key asks for arithmetic that we do not do; names the key.
    """
    metadata, prefix = _Metadata(path, values), family.gguf_architecture + "."
    for key, neutral in _NEUTRAL_VALUES.items():
        if (value := values.get(prefix + key)) is not None and value not in neutral:
            raise UnsupportedModel(f"{path}: {prefix}{key} = {value!r:.80} is not supported yet")
    num_heads = metadata.get(prefix + "attention.head_count", int)
    hidden_size = metadata.get(prefix + "embedding_length", int)
    head_dim = metadata.get(prefix + "attention.key_length", int, hidden_size // num_heads if num_heads else 0)
    for key in ("attention.value_length", "rope.dimension_count"):
        if (size := metadata.get(prefix + key, int, head_dim)) != head_dim:
            raise UnsupportedModel(f"{path}: {prefix}{key} = {size} differs from the head size {head_dim}")
    if "embed.weight" not in tensors:
        raise ModelFileError(f"{path}: tensor token_embd.weight is missing")
    return ModelConfig(
        family=family.name,
        vocab_size=tensors["embed.weight"].shape[0],
        hidden_size=hidden_size,
        intermediate_size=metadata.get(prefix + "feed_forward_length", int),
        num_layers=metadata.get(prefix + "block_count", int),
        num_heads=num_heads,
        num_kv_heads=metadata.get(prefix + "attention.head_count_kv", int, num_heads),
        head_dim=head_dim,
        rms_norm_eps=metadata.get(prefix + "attention.layer_norm_rms_epsilon", float),
        rope_theta=metadata.get(prefix + "rope.freq_base", float, 10000.0),
        max_model_tokens=metadata.get(prefix + "context_length", int),
        # A head in the file is used; without one the embedding is the head. GGUF has no flag for it.
        tie_embeddings="lm_head.weight" not in tensors,
        bos_id=values.get("tokenizer.ggml.bos_token_id"),
        eos_ids=_eos_ids(metadata, values),
    ).check(path)


def _eos_ids(metadata: _Metadata, values: Mapping[str, Any]) -> tuple[int, ...]:
    keys = (f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom"))
    return tuple(sorted({metadata.get(key, int) for key in keys if key in values}))


def read_tokenizer(path: Path, values: Mapping[str, Any], config: ModelConfig) -> TokenizerFiles:
    """The tokenizer stored in the file.

    Raises:
        ModelFileError: none is stored, or its lists do not match the vocabulary.
    """
    metadata, prefix = _Metadata(path, values), "tokenizer.ggml."
    kind = metadata.get(prefix + "model", str)
    tokens = metadata.get(prefix + "tokens", list)
    types = metadata.get(prefix + "token_type", list, [1] * len(tokens))
    scores = metadata.get(prefix + "scores", list, [])
    if len(tokens) > config.vocab_size or len(types) != len(tokens) or len(scores) not in (0, len(tokens)):
        raise ModelFileError(
            f"{path}: {len(tokens)} tokens, {len(types)} token types and {len(scores)} scores "
            f"do not fit a vocabulary of {config.vocab_size}"
        )
    template = metadata.get("tokenizer.chat_template", str, "")
    return TokenizerFiles(
        gguf=GGUFTokenizer(
            kind=kind,
            pre=metadata.get(prefix + "pre", str, "default"),
            tokens=tokens,
            token_types=types,
            merges=metadata.get(prefix + "merges", list, []),
            scores=scores,
            add_space_prefix=metadata.get(prefix + "add_space_prefix", bool, kind == "llama"),
        ),
        bos_id=config.bos_id,
        eos_ids=config.eos_ids,
        add_bos=metadata.get(prefix + "add_bos_token", bool, kind == "llama"),
        chat_template=template or None,
    )
