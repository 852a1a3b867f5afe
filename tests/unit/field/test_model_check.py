"""Whether a model will run: what is said of sound ones, and everything that is wrong with broken ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runnable_models import RUNNABLE, write_runnable
from tenuto.clock import RealClock
from tenuto.device.cpu import native_library
from tenuto.field import Conditions, ModelReport, TensorType, check_model
from tenuto.field.model_check import in_ranges
from tiny_encoders import bert, save_encoder
from tiny_models import TinyLlama, write_gguf


def checked(path: Path, *, kv_tokens: int = 1024, available: int | None = 10**10) -> ModelReport:
    return check_model(path, Conditions(kv_tokens=kv_tokens, available_bytes=available, clock=RealClock()))


def test_a_sound_directory_runs(tmp_path: Path) -> None:
    path = write_runnable(tmp_path / "小模型", template="{% for m in messages %}{{ m.content }}{% endfor %}{{ tools }}")
    report = checked(path)
    assert report.runs and report.problems == () and report.notes == ()
    assert (report.name, report.family, report.format, report.use) == ("小模型", "llama", "safetensors", "generation")
    assert report.max_model_tokens == 2048
    num_bytes = sum(array.nbytes for array in RUNNABLE.weights().values())
    assert report.num_parameters == num_bytes // 4
    assert report.tensor_types == (TensorType("F32", len(RUNNABLE.weights()), num_bytes),)
    assert report.tokenizer == "BPE (tokenizer.json)"
    assert report.chat_template == "the model's own, with tools too"
    fp32, bf16 = report.precisions
    assert fp32.fits and bf16.fits and (fp32.precision, bf16.precision) == ("fp32", "bf16")
    assert fp32.kv_bytes_per_token == 2 * bf16.kv_bytes_per_token == 2 * 2 * 2 * 16 * 4
    assert fp32.kv_bytes == 1024 * fp32.kv_bytes_per_token
    assert fp32.total_bytes == fp32.weight_bytes + fp32.kv_bytes


@pytest.mark.model
def test_the_embedded_model_runs(embedded_model_path: Path) -> None:
    report = checked(embedded_model_path)
    assert report.runs and report.format == "GGUF"
    assert {t.name for t in report.tensor_types} == {"Q4_1", "Q8_0", "F32"}
    assert sum(t.num_bytes for t in report.tensor_types) < report.file_bytes


def test_which_template_is_used_is_said(tmp_path: Path) -> None:
    assert checked(write_runnable(tmp_path / "a")).chat_template == "none in the files: Tenuto's own is used"
    own = write_runnable(tmp_path / "b", template="{% for m in messages %}{{ m.content }}{% endfor %}")
    assert checked(own).chat_template == "the model's own; with tools Tenuto's own"
    broken = checked(write_runnable(tmp_path / "c", template="{% for"))
    assert not broken.runs and broken.problems[0].startswith("chat template:")


def test_an_encoder_is_for_embedding(tmp_path: Path) -> None:
    report = checked(save_encoder(tmp_path / "bert", bert()))
    assert report.runs, report.problems
    assert report.use == "embedding" and report.family == "bert"
    assert all(fit.kv_bytes == 0 and fit.weight_bytes > 0 for fit in report.precisions)


def test_all_that_is_wrong_with_a_directory_is_named_at_once(tmp_path: Path) -> None:
    path = write_runnable(
        tmp_path / "m", sharded=True, rope_scaling={"rope_type": "spiral", "factor": 2.0}, attn_logit_softcapping=30.0
    )
    first, second = sorted(path.glob("model-*.safetensors"))
    first.unlink()
    second.write_bytes(second.read_bytes()[:-10])
    (path / "tokenizer.json").write_text("{")
    report = checked(path)
    assert not report.runs
    said = "\n".join(report.problems)
    for wrong in ("model-00001-of-00002", "model-00002-of-00002", "spiral", "attn_logit_softcapping", "tokenizer.json"):
        assert wrong in said, (wrong, said)
    assert str(tmp_path) not in said  # names are relative to the model


def test_missing_and_foreign_tensors_are_all_named(tmp_path: Path) -> None:
    weights = RUNNABLE.weights()
    gone = ["model.norm.weight", *(f"model.layers.{i}.mlp.up_proj.weight" for i in range(2))]
    tiny = {name: array for name, array in weights.items() if name not in gone}
    tiny["model.layers.1.mlp.down_proj.weight"] = tiny["model.layers.1.mlp.down_proj.weight"][:, :-1].copy()
    path = write_runnable(tmp_path / "m")
    from safetensors.numpy import save_file

    save_file(tiny, str(path / "model.safetensors"))
    report = checked(path)
    assert report.problems == (
        "tensors are missing: layers.0-1.mlp.up.weight",
        "tensors are missing: norm.weight",
        "tensor layers.1.mlp.down.weight has shape [64, 95], the config asks for [64, 96]",
    )
    assert report.precisions[0].weight_bytes > 0  # what a whole one would need


@pytest.mark.parametrize(
    ("cut", "said"),
    [(lambda data: data[: len(data) // 2], "cut short"), (lambda _: b"GGUF", "cut short"), (lambda _: b"", "neither")],
)
def test_a_cut_gguf_file_is_told(tmp_path: Path, cut, said: str) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "m.gguf"
    write_gguf(path, RUNNABLE, RUNNABLE.weights(), "Q8_0")
    path.write_bytes(cut(path.read_bytes()))
    report = checked(path)
    assert not report.runs and said in report.problems[0] and report.name == "m"


def test_an_unknown_pre_tokenizer_is_told_beside_what_is_known(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    tiny = TinyLlama()
    write_gguf(path, tiny, tiny.weights())
    data = path.read_bytes()
    path.write_bytes(data.replace(b"smollm", b"smoxxm"))
    report = checked(path)
    assert not report.runs
    assert any("smoxxm" in problem for problem in report.problems)
    assert report.family == "llama" and report.precisions


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda p: (p / "config.json").unlink(), "config.json"),
        (lambda p: (p / "model.safetensors").rename(p / "pytorch_model.bin"), "pickled"),
        (lambda p: (p / "tokenizer.json").unlink(), "tokenizer"),
        (lambda p: (p / "config.json").write_text(json.dumps({"model_type": "gpt_oss"})), "gpt_oss"),
    ],
)
def test_whatever_is_missing_in_a_directory_is_told(tmp_path: Path, make, said: str) -> None:  # type: ignore[no-untyped-def]
    path = write_runnable(tmp_path / "m")
    make(path)
    report = checked(path)
    assert not report.runs and any(said in problem for problem in report.problems), report.problems


def test_a_path_that_is_no_model_is_told(tmp_path: Path) -> None:
    assert not checked(tmp_path / "nothing.gguf").runs
    assert not checked(tmp_path).runs


def test_too_little_memory_is_a_problem_with_its_numbers_and_the_fix(tmp_path: Path) -> None:
    path = write_runnable(tmp_path / "m")
    fp32, bf16 = checked(path).precisions
    between = checked(path, available=(fp32.total_bytes + bf16.total_bytes) // 2)
    assert between.runs and [fit.fits for fit in between.precisions] == [False, True]
    none = checked(path, available=bf16.total_bytes - 1)
    assert not none.runs and "kv_tokens" in none.problems[0] and "bf16" in none.problems[0]
    tight = checked(path, available=fp32.total_bytes)
    assert tight.runs and "fp32 leaves less than a tenth" in tight.notes[0]
    unknown = checked(path, available=None)
    assert unknown.runs and unknown.precisions[0].fits is None and "not known" in unknown.notes[0]


@pytest.mark.skipif(native_library() is None, reason="the native kernels are not built")
def test_a_precision_that_the_device_cannot_do_is_told_beside_those_it_can(tmp_path: Path) -> None:
    path = write_runnable(tmp_path / "m", TinyLlama(vocab_size=320, head_dim=24))
    conditions = Conditions(kv_tokens=64, available_bytes=10**10, clock=RealClock(), precisions=("fp32", "int8"))
    report = check_model(path, conditions)
    assert report.runs and [fit.fits for fit in report.precisions] == [True, False, False]
    assert any(note.startswith("int8 is not possible:") and "24" in note for note in report.notes)
    alone = check_model(path, Conditions(kv_tokens=64, available_bytes=1, clock=RealClock(), precisions=("int8",)))
    assert not alone.runs and alone.problems[0].startswith("int8:")


@pytest.mark.skipif(native_library() is None, reason="the native kernels are not built")
def test_int8_kv_has_a_row_of_its_own(tmp_path: Path) -> None:
    path = write_runnable(tmp_path / "m")
    fits = check_model(
        path, Conditions(kv_tokens=64, available_bytes=None, clock=RealClock(), precisions=("bf16", "int8"))
    ).precisions
    assert [fit.name for fit in fits] == ["bf16", "int8", "int8/int8"]
    assert fits[2].weight_bytes == fits[1].weight_bytes and fits[2].kv_bytes < fits[1].kv_bytes


def test_names_are_given_together() -> None:
    names = [f"layers.{i}.a.weight" for i in (0, 1, 2, 5, 7, 8)] + ["norm.weight", "layers.3.b"]
    assert in_ranges(names) == ["layers.0-2,5,7-8.a.weight", "layers.3.b", "norm.weight"]
    assert in_ranges([]) == []
