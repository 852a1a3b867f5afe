"""Encoders' directories: what their files say, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tenuto.checkpoint import open_checkpoint
from tenuto.checkpoint.encoders import EmbeddingLayout, is_encoder, open_encoder
from tenuto.device import ReferenceDevice
from tenuto.errors import ModelFileError, UnsupportedModel
from tenuto.model import load_encoder
from tiny_encoders import bert, bert_classifier, save_encoder, save_layout, xlm_roberta

MEAN = {"word_embedding_dimension": 32, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return save_encoder(tmp_path / "编码器", bert())


def change(path: Path, **keys: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


def test_a_plain_directory(directory: Path) -> None:
    checkpoint = open_encoder(directory)
    assert is_encoder(directory)
    assert checkpoint.name == "编码器" and len(checkpoint.fingerprint) == 64
    assert checkpoint.config.family == "bert" and checkpoint.config.max_model_tokens == 70
    assert checkpoint.config.num_labels is None
    assert not any(name.startswith("head.") for name in checkpoint.tensor_names())  # BERT's pooler is not used
    assert checkpoint.layout == EmbeddingLayout()


def test_positions_after_the_padding(tmp_path: Path) -> None:
    config = open_encoder(save_encoder(tmp_path, xlm_roberta())).config
    assert (config.position_offset, config.max_model_tokens) == (2, 68)


def test_sentence_transformers_files_are_read(directory: Path) -> None:
    prompts = {"prompts": {"query": "查询: ", "document": ""}, "default_prompt_name": "document"}
    settings = {"max_seq_length": 33, "do_lower_case": True}
    files = {"config_sentence_transformers": prompts, "sentence_bert_config": settings}
    save_layout(directory, MEAN, "Normalize", **files)
    assert open_encoder(directory).layout == EmbeddingLayout(
        pooling="mean",
        normalise=True,
        max_model_tokens=33,
        lowercase=True,
        prompts=(("query", "查询: "), ("document", "")),
        default_prompt="document",
    )


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ({"pooling_mode_cls_token": True}, "first"),
        ({"pooling_mode_lasttoken": True}, "last"),
        ({"pooling_mode": "cls"}, "first"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False, "include_prompt": True}, "mean"),
    ],
)
def test_poolings(directory: Path, pooling: dict[str, Any], expected: str) -> None:
    layout = open_encoder(save_layout(directory, pooling)).layout
    assert layout.pooling == expected
    assert layout.normalise is False  # the makers list their modules, and none of them normalises


@pytest.mark.parametrize(
    ("settings", "sigmoid"),
    [
        ({}, True),
        ({"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}, False),
        ({"sbert_ce_default_activation_function": "torch.nn.modules.activation.Sigmoid"}, True),
    ],
)
def test_what_becomes_of_a_score(tmp_path: Path, settings: dict[str, Any], sigmoid: bool) -> None:
    directory = save_encoder(tmp_path, bert_classifier())
    change(directory / "config.json", **settings)
    checkpoint = open_encoder(directory)
    assert checkpoint.config.num_labels == 1
    assert checkpoint.layout.sigmoid is sigmoid


@pytest.mark.parametrize(
    ("pooling", "modules", "files", "message"),
    [
        (MEAN, ["Dense"], {}, "module Dense"),
        ({"pooling_mode_max_tokens": True}, [], {}, "pooling by max_tokens"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, [], {}, "cls_token and mean_tokens"),
        ({}, [], {}, "pooling by nothing"),
        ({**MEAN, "include_prompt": False}, [], {}, "include_prompt"),
        ({"pooling_mode_mean_tokens": "yes"}, [], {}, "true or false"),
        (MEAN, [], {"sentence_bert_config": {"max_seq_length": -1}}, "max_seq_length"),
        (MEAN, [], {"config_sentence_transformers": {"prompts": [1]}}, "prompts"),
        (MEAN, [], {"config_sentence_transformers": {"default_prompt_name": "x"}}, "default_prompt_name"),
        (MEAN, [], {"config_sentence_transformers": {"prompts": {"q": "x" * 20_000}}}, "longer than"),
    ],
)
def test_layouts_that_are_refused(
    directory: Path, pooling: dict[str, Any], modules: list[str], files: dict[str, Any], message: str
) -> None:
    save_layout(directory, pooling, *modules, **files)
    with pytest.raises(ModelFileError, match=message):
        open_encoder(directory)


@pytest.mark.parametrize("folder", ["..", "../secret", "/etc", "a\\b", "a\x00b"])
def test_modules_lie_inside_the_directory(directory: Path, folder: str) -> None:
    """B64"""
    save_layout(directory, MEAN)
    (directory / "modules.json").write_text(json.dumps([{"type": "x.Pooling", "path": folder}]))
    with pytest.raises(ModelFileError, match=r"modules\.json"):
        open_encoder(directory)


@pytest.mark.parametrize("content", ["", "{}", "[1]", '[{"type": 5, "path": ""}]', "[" * 100_000])
def test_a_list_of_modules_that_is_none(directory: Path, content: str) -> None:
    (directory / "modules.json").write_text(content)
    with pytest.raises(ModelFileError, match=r"modules\.json"):
        open_encoder(directory)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"hidden_act": "swiglu"}, "hidden_act"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"is_decoder": True}, "is_decoder"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"num_attention_heads": 5}, "attention heads"),
        ({"num_attention_heads": 0}, "num_heads is 0"),
        ({"num_hidden_layers": 10**9}, "more than"),
        ({"vocab_size": 2**40}, "vocab_size"),
        ({"layer_norm_eps": 0}, "layer_norm_eps"),
        ({"hidden_size": "large"}, "hidden_size"),
        ({"vocab_size": None}, "vocab_size is missing"),
    ],
)
def test_configs_that_are_refused(directory: Path, keys: dict[str, Any], message: str) -> None:
    change(directory / "config.json", **keys)
    with pytest.raises(ModelFileError, match=message):
        open_encoder(directory)


def test_tensors_are_held_against_the_config(directory: Path) -> None:
    change(directory / "config.json", intermediate_size=50, num_hidden_layers=3)
    with pytest.raises(ModelFileError) as caught:
        load_encoder(open_encoder(directory), ReferenceDevice())
    assert "tensors are missing: layers.2." in str(caught.value)
    assert "layers.0.mlp.up.weight has shape [48, 32], the config asks for [50, 32]" in str(caught.value)


def test_strange_tensors_are_named(directory: Path) -> None:
    tensors = load_file(directory / "model.safetensors")
    tensors["encoder.layer.0.attention.self.distance_embedding.weight"] = torch.zeros(3, 8)
    tensors["embeddings.word_embeddings.weight"] = torch.zeros(64, 32, dtype=torch.int64)
    save_file(tensors, directory / "model.safetensors")
    with pytest.raises(UnsupportedModel) as caught:
        open_encoder(directory)
    assert "distance_embedding" in str(caught.value) and "type I64" in str(caught.value)


def test_each_door_names_the_other_kind(directory: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"'bert' is an encoder.*tenuto embed"):
        open_checkpoint(directory)
    change(directory / "config.json", model_type="llama")
    assert not is_encoder(directory) and not is_encoder(tmp_path / "nowhere")
    with pytest.raises(UnsupportedModel, match="no encoder"):
        open_encoder(directory)
