"""What people have in place of a model is told by what it is, not by what is missing from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runnable_models import RUNNABLE, write_runnable
from tenuto.checkpoint import open_checkpoint
from tenuto.clock import RealClock
from tenuto.errors import ModelFileError, UnsupportedModel
from tenuto.field import Conditions, check_model
from tiny_models import TinyLlama, write_gguf

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935\nsize 4437782\n"
PAGE = b"\n<!DOCTYPE html>\n<html lang=zh><title>404</title>\n"


def told(path: Path) -> str:
    """The message of opening, which the check repeats."""
    with pytest.raises(ModelFileError) as caught:
        open_checkpoint(path)
    report = check_model(path, Conditions(kv_tokens=64, available_bytes=None, clock=RealClock()))
    message = str(caught.value)
    assert not report.runs and any(p.rpartition(": ")[2] in message for p in report.problems), report.problems
    return message


@pytest.mark.parametrize(("content", "said"), [(POINTER, "git lfs pull"), (PAGE, "a web page")])
@pytest.mark.parametrize(
    "name",
    [
        *("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "model.safetensors"),
        *("model.safetensors.index.json", "model-00002-of-00002.safetensors", "chat_template.jinja", "tokenizer.model"),
    ],
)
def test_files_that_are_there_only_by_name(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    path = write_runnable(tmp_path / "模型", sharded=name not in ("model.safetensors",))
    if name == "tokenizer.model":
        (path / "tokenizer.json").unlink()
    (path / name).write_bytes(content)
    message = told(path)
    assert said in message and name in message


@pytest.mark.parametrize(
    ("content", "said"), [(POINTER, "git lfs pull"), (PAGE, "a web page"), (b"%PDF-1.7", "neither")]
)
def test_gguf_files_that_are_there_only_by_name(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "模型.gguf"
    path.write_bytes(content)
    assert said in told(path)


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("adapter_config.json", UnsupportedModel, "LoRA adapter"),
        ("model_index.json", UnsupportedModel, "pictures"),
        ("params.json", UnsupportedModel, "Hugging Face layout"),
        ("README.md", ModelFileError, "no config.json and no GGUF file"),
    ],
)
def test_folders_of_something_else(tmp_path: Path, name: str, kind: type[ModelFileError], said: str) -> None:
    (tmp_path / name).write_text("{}")
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    with pytest.raises(kind, match=said):
        open_checkpoint(tmp_path)
    assert said in told(tmp_path)
    report = check_model(tmp_path, Conditions(kv_tokens=64, available_bytes=None, clock=RealClock()))
    assert len(report.problems) == 1, "what it is, not what it lacks"


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"general.type": "adapter", "adapter.type": "lora"}, "LoRA adapter"),
        ({"general.type": "mmproj"}, "language model beside it"),
        ({"general.type": "imatrix"}, "without a model"),
        ({"general.type": "vocab"}, "without a model"),
    ],
)
def test_gguf_files_of_something_else(tmp_path: Path, extra: dict[str, str], said: str) -> None:
    path = tmp_path / "m.gguf"
    write_gguf(path, RUNNABLE, RUNNABLE.weights(), extra=dict(extra))
    assert said in told(path)


def test_a_sound_model_may_say_what_it_is(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", RUNNABLE, RUNNABLE.weights(), extra={"general.type": "model"})
    assert open_checkpoint(tmp_path / "m.gguf").config.num_layers == 2


@pytest.mark.parametrize(
    "model_type", ["t5", "mixtral", "llava", "vit", "qwen2_vl", "mamba", "gpt_oss", None, 7, ["x"]]
)
def test_models_of_another_kind(tmp_path: Path, model_type: object) -> None:
    path = write_runnable(tmp_path / "m")
    (path / "config.json").write_text(json.dumps({"model_type": model_type, "text_config": {}}))
    message = told(path)
    assert repr(model_type) in message and "supported: llama" in message


def test_a_mixture_that_calls_itself_llama(tmp_path: Path) -> None:
    tiny = TinyLlama()
    weights = tiny.weights()
    path = tmp_path / "m.gguf"
    write_gguf(path, tiny, weights, extra={"llama.expert_count": 8, "llama.expert_used_count": 2})
    assert "expert_count = 8 is not supported" in told(path)
    path.write_bytes(path.read_bytes().replace(b"blk.0.ffn_gate.weight", b"blk.0.ffn_gate_inp.we"))
    with pytest.raises(ModelFileError):
        open_checkpoint(path)
