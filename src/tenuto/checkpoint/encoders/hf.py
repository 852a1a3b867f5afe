"""An encoder in a Hugging Face directory: config.json, safetensors, tokenizer.json, sentence-transformers' files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tenuto.checkpoint.config import TokenizerFiles
from tenuto.checkpoint.encoders.config import EncoderActivation, EncoderConfig
from tenuto.checkpoint.encoders.layout import read_layout
from tenuto.checkpoint.encoders.names import ENCODER_FAMILIES, EncoderFamily
from tenuto.checkpoint.hf_shards import stored_tensors
from tenuto.checkpoint.json_file import MAX_TOKENIZER_BYTES, read_file, read_json
from tenuto.checkpoint.stored_model import StoredModel
from tenuto.checkpoint.values import Values
from tenuto.checkpoint.weight_file import StoredTensor
from tenuto.errors import ModelFileError, UnsupportedModel

_ACTIVATIONS: dict[str, EncoderActivation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}


def encoder_family(model_type: object) -> EncoderFamily | None:
    """The family of a config.json's `model_type`; None if it is no encoder of ours."""
    return next((family for family in ENCODER_FAMILIES if model_type in family.hf_model_types), None)


class HFEncoderCheckpoint(StoredModel):
    """Opened and checked directory; see the `EncoderCheckpoint` protocol."""

    def __init__(self, path: Path) -> None:
        config = read_json(path / "config.json")
        family = encoder_family(config.get("model_type"))
        if family is None:
            known = ", ".join(name for family in ENCODER_FAMILIES for name in family.hf_model_types)
            kind = config.get("model_type")
            raise UnsupportedModel(f"{path / 'config.json'}: model_type {kind!r:.80} is no encoder; known are {known}")
        headers, tensors = stored_tensors(path)
        found = _by_neutral_name(path, family, tensors)
        super().__init__(path, path.resolve().name, found)
        out = found.get("head.out.weight")
        num_labels = None if out is None else out.shape[0] if out.shape else 0
        self.config = _read_config(path / "config.json", family, config, num_labels)
        self.layout = read_layout(path, config)
        self.tokenizer = TokenizerFiles(json_path=path / "tokenizer.json")
        texts = (read_file(path / name, MAX_TOKENIZER_BYTES) for name in ("config.json", "tokenizer.json"))
        self.fingerprint = self.fingerprint_with([*headers, *texts])


def _by_neutral_name(path: Path, family: EncoderFamily, tensors: list[StoredTensor]) -> dict[str, StoredTensor]:
    found: dict[str, StoredTensor] = {}
    problems: list[str] = []
    for tensor in tensors:
        neutral = family.neutral_hf(tensor.name)
        if neutral is None:
            if not family.ignores_hf(tensor.name):
                problems.append(f"tensor {tensor.name:.80} is not part of a {family.name} encoder")
        elif tensor.type_name not in ("F32", "F16", "BF16"):
            problems.append(f"tensor {tensor.name:.80} has type {tensor.type_name}, which is not supported in encoders")
        elif neutral in found:
            raise ModelFileError(f"{path}: tensor {tensor.name} is stored twice")
        else:
            found[neutral] = tensor
    if problems:
        raise UnsupportedModel.of(path, problems)
    if "head.out.weight" not in found:
        # A pooler without a classifier was trained for another task; it is no part of the hidden states.
        found = {name: tensor for name, tensor in found.items() if not name.startswith("head.")}
    return found


def _read_config(
    path: Path, family: EncoderFamily, settings: Mapping[str, Any], num_labels: int | None
) -> EncoderConfig:
    values = Values(path, settings)
    values.only("position_embedding_type", "absolute")
    values.only("is_decoder", False)
    values.only("add_cross_attention", False)
    values.only("quantization_config")
    activation = values.text("hidden_act", "gelu")
    if activation not in _ACTIVATIONS:
        values.refuse(f"hidden_act = {activation!r:.80} is not supported")
    values.finish()
    padding = values.integer("pad_token_id", 1 if family.positions_after_padding else 0)
    return EncoderConfig(
        family=family.name,
        vocab_size=values.integer("vocab_size"),
        hidden_size=values.integer("hidden_size"),
        intermediate_size=values.integer("intermediate_size"),
        num_layers=values.integer("num_hidden_layers"),
        num_heads=values.integer("num_attention_heads"),
        layer_norm_eps=values.number("layer_norm_eps", 1e-12),
        num_positions=values.integer("max_position_embeddings"),
        position_offset=padding + 1 if family.positions_after_padding else 0,
        num_token_types=values.integer("type_vocab_size"),
        activation=_ACTIVATIONS[activation],
        num_labels=num_labels,
    ).check(path)
