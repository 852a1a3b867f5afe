"""An encoder in a Hugging Face directory: config.json, safetensors, tokenizer.json, sentence-transformers' files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tenuto.checkpoint.config import TokenizerFiles
from tenuto.checkpoint.encoders.config import EncoderActivation, EncoderConfig
from tenuto.checkpoint.encoders.layout import read_layout
from tenuto.checkpoint.encoders.names import ENCODER_FAMILIES, EncoderFamily
from tenuto.checkpoint.hf_checkpoint import stored_tensors
from tenuto.checkpoint.json_file import read_json
from tenuto.checkpoint.quant_types import dequantise
from tenuto.checkpoint.safetensors_format import StoredTensor
from tenuto.checkpoint.values import Values
from tenuto.errors import ModelFileError, UnsupportedModel

_SAMPLE_BYTES = 256
_ACTIVATIONS: dict[str, EncoderActivation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}


def encoder_family(model_type: object) -> EncoderFamily | None:
    """The family of a config.json's `model_type`; None if it is no encoder of ours."""
    return next((family for family in ENCODER_FAMILIES if model_type in family.hf_model_types), None)


class HFEncoderCheckpoint:
    """Opened and checked directory; see the `EncoderCheckpoint` protocol."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.resolve().name
        config = read_json(path / "config.json")
        family = encoder_family(config.get("model_type"))
        if family is None:
            known = ", ".join(name for family in ENCODER_FAMILIES for name in family.hf_model_types)
            kind = config.get("model_type")
            raise UnsupportedModel(f"{path / 'config.json'}: model_type {kind!r:.80} is no encoder; known are {known}")
        headers, tensors = stored_tensors(path)
        self._tensors = _by_neutral_name(path, family, tensors)
        out = self._tensors.get("head.out.weight")
        num_labels = None if out is None else out.shape[0] if out.shape else 0
        self.config = _read_config(path / "config.json", family, config, num_labels)
        self.layout = read_layout(path, config)
        self.tokenizer = TokenizerFiles(json_path=path / "tokenizer.json")
        self.fingerprint = self._fingerprint(headers)

    def tensor_names(self) -> list[str]:
        return list(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensor(name).shape

    def read(self, name: str) -> npt.NDArray[np.float32]:
        tensor = self._tensor(name)
        raw = np.fromfile(tensor.path, np.uint8, tensor.num_bytes, offset=tensor.offset)
        if raw.size != tensor.num_bytes:
            raise ModelFileError(f"{tensor.path}: tensor {tensor.name} could not be read whole; the file changed")
        return dequantise(raw, tensor.type_name, tensor.shape)

    def _tensor(self, name: str) -> StoredTensor:
        if name not in self._tensors:
            raise ModelFileError(f"{self.path}: no tensor for {name}")
        return self._tensors[name]

    def _fingerprint(self, headers: list[bytes]) -> str:
        digest = hashlib.sha256()
        for header in headers:
            digest.update(header)
        for name in ("config.json", "tokenizer.json"):
            read_json(self.path / name)  # a directory or a pipe of that name is refused
            digest.update((self.path / name).read_bytes())
        for tensor in self._tensors.values():
            count = min(tensor.num_bytes, _SAMPLE_BYTES)
            digest.update(np.fromfile(tensor.path, np.uint8, count, offset=tensor.offset).tobytes())
        return digest.hexdigest()


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
