"""An encoder in a GGUF file, as the ggml project's converter writes BERT and XLM-RoBERTa: architecture `bert`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tenuto.checkpoint.config import TokenizerFiles
from tenuto.checkpoint.encoders.config import EmbeddingLayout, EncoderConfig, PoolingName
from tenuto.checkpoint.encoders.names import GGUF_NAMES
from tenuto.checkpoint.families.family import neutral_name
from tenuto.checkpoint.gguf_config import read_vocabulary
from tenuto.checkpoint.gguf_parts import read_parts
from tenuto.checkpoint.stored_model import StoredModel, some
from tenuto.checkpoint.values import Values
from tenuto.checkpoint.weight_file import StoredTensor
from tenuto.errors import ModelFileError, UnsupportedModel

GGUF_ARCHITECTURES = ("bert",)

_NO_POOLING, _RANK = 0, 4
_POOLINGS: dict[int, PoolingName] = {1: "mean", 2: "first", 3: "last"}  # llama.cpp's numbers


class GGUFEncoderCheckpoint(StoredModel):
    """Opened and checked GGUF file; see the `EncoderCheckpoint` protocol."""

    def __init__(self, path: Path) -> None:
        model = read_parts(path)
        metadata = model.whole.metadata
        architecture = metadata.get("general.architecture")
        if architecture not in GGUF_ARCHITECTURES:
            known = ", ".join(GGUF_ARCHITECTURES)
            raise UnsupportedModel(f"{path}: architecture {architecture!r:.80} is no encoder; known are {known}")
        found = _by_neutral_name(path, model.whole.tensors)
        super().__init__(path, model.name, found)
        values = Values(path, metadata, f"{architecture}.")
        self.config = _read_config(values, found)
        self.layout = _read_layout(values)
        values.finish()
        self.tokenizer = _read_tokenizer(path, metadata, self.config.vocab_size)
        self.fingerprint = self.fingerprint_with(model.headers)


def _by_neutral_name(path: Path, tensors: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    names = {name: neutral_name(GGUF_NAMES, name) for name in tensors}
    if strange := [f"tensor {name:.80} is not part of a bert encoder" for name, ours in names.items() if ours is None]:
        raise UnsupportedModel.of(path, some(strange))
    return {ours: tensors[name] for name, ours in names.items() if ours is not None}


def _read_config(values: Values, tensors: Mapping[str, StoredTensor]) -> EncoderConfig:
    values.only("attention.causal", False)
    rows = {name: _rows(values.path, tensors, name) for name in ("embed", "positions", "token_types")}
    out = tensors.get("head.out.weight")
    return EncoderConfig(
        family="bert",
        vocab_size=rows["embed"],
        hidden_size=values.integer("embedding_length"),
        intermediate_size=values.integer("feed_forward_length"),
        num_layers=values.integer("block_count"),
        num_heads=values.integer("attention.head_count"),
        layer_norm_eps=values.number("attention.layer_norm_epsilon"),
        num_positions=rows["positions"],
        position_offset=0,  # the converter leaves out the rows before a text's first position
        num_token_types=rows["token_types"],
        num_labels=None if out is None else out.shape[0] if out.shape else 0,
    ).check(values.path)


def _rows(path: Path, tensors: Mapping[str, StoredTensor], name: str) -> int:
    table = tensors.get(f"{name}.weight")
    if table is None or len(table.shape) != 2:
        raise ModelFileError(f"{path}: the table of {name} is missing or no table")
    return table.shape[0]


def read_gguf_layout(path: Path) -> EmbeddingLayout:
    """Of a file of any architecture. Raises ModelFileError, UnsupportedModel."""
    metadata = read_parts(path).whole.metadata
    values = Values(path, metadata, f"{metadata.get('general.architecture')}.")
    layout = _read_layout(values)
    values.finish()
    return layout


def _read_layout(values: Values) -> EmbeddingLayout:
    kind = values.integer("pooling_type", _NO_POOLING)
    if kind in (_NO_POOLING, _RANK):
        return EmbeddingLayout()
    if kind not in _POOLINGS:
        values.refuse(f"pooling_type = {kind} is not supported")
        return EmbeddingLayout()
    return EmbeddingLayout(pooling=_POOLINGS[kind])


def _read_tokenizer(path: Path, metadata: Mapping[str, Any], vocab_size: int) -> TokenizerFiles:
    values = Values(path, metadata, "tokenizer.ggml.")
    vocabulary = read_vocabulary(path, metadata, vocab_size)
    texts = ("[CLS]", "[SEP]") if vocabulary.kind == "bert" else ("<s>", "</s>")
    # The misspelt name is the format's own.
    keys = (("cls_token_id", "bos_token_id"), ("seperator_token_id", "eos_token_id"))
    ids: list[int] = []
    for text, names in zip(texts, keys, strict=True):
        named = [values.integer(name) for name in names if values.has(name)]
        known = [i for i, token in enumerate(vocabulary.tokens) if token == text]
        if not (candidates := named or known):
            raise ModelFileError(f"{path}: the file does not say what id {text} has")
        if not 0 <= candidates[0] < len(vocabulary.tokens):
            raise ModelFileError(f"{path}: the id {candidates[0]} of {text} lies outside the vocabulary")
        ids.append(candidates[0])
    return TokenizerFiles(gguf=vocabulary, frame_ids=(ids[0], ids[1]))
