"""`tenuto compare` in this process, on tiny models: what it prints, how it ends, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import Result
from typer.testing import CliRunner

from runnable_models import RUNNABLE, write_runnable
from tenuto.cli import comparison
from tenuto.cli.main import app
from tenuto.compare.texts import read_text, shipped_texts
from tenuto.errors import ConfigError, NeverFits, TenutoError
from tiny_models import TinyLlama

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TENUTO_CACHE", str(tmp_path / "cache"))
    return lambda *arguments: CliRunner().invoke(app, ["compare", *arguments])


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(write_runnable(tmp_path / "模型"))


def test_json_holds_what_was_asked_for(run: Run, model: str, tmp_path: Path) -> None:
    result = run("fp32", "bf16", "--model", model, "--tokens", "300", "--threads", "1", "--json", "--plot", "kl.svg")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["a"]["precision"], found["b"]["precision"]) == ("fp32", "bf16")
    assert found["b"]["weight_bytes"] < found["a"]["weight_bytes"]
    assert found["b"]["kv_bytes_per_token"] * 2 == found["a"]["kv_bytes_per_token"]
    assert [(t["text"], t["num_tokens"]) for t in found["texts"]] == [("prose", 299), ("code", 299)]
    for text in found["texts"]:
        assert 0 < text["mean_kl"] < 0.01 and abs(text["perplexity_change"]) < 0.01
        assert [b["start"] for b in text["buckets"]] == [0, 256]
    assert len(found["layers"]["errors"]) == 1 + RUNNABLE.num_layers
    assert found["layers"]["errors"][0] < found["layers"]["errors"][-1]
    assert [c["kind"] for c in found["copies"]] == ["numbers", "code"]
    assert {s["what"] for s in found["speeds"]} == {"prefill", "decode, 1 session", "decode, 8 sessions"}
    assert all(s["is_interleaved"] and s["a_s"] > 0 for s in found["speeds"])
    assert found["calls"] is None and "2048" in found["skipped"][0]  # a byte a token: the prompt is too long
    assert found["verdict"]["is_safe_for_exact"] is not True
    lines = ElementTree.parse(tmp_path / "kl.svg").findall("{http://www.w3.org/2000/svg}polyline")
    assert [len(line.attrib["points"].split()) for line in lines] == [2, 2]


def test_a_setting_against_itself_shows_no_difference_in_words(run: Run, model: str) -> None:
    result = run(
        "fp32", "fp32", "--model", model, "--only", "accuracy,layers,copies", "--tokens", "64", "--max-kl", "0"
    )
    assert result.exit_code == 0, result.output
    for words in ("+0.00%", "0.00000", "100.00%", "nowhere", "close to A", "was not measured"):
        assert words in result.stdout, words


def test_the_native_device_against_the_definition_of_its_precision(run: Run, model: str) -> None:
    arguments = ("int8/int8", "int8/int8,device=reference", "--model", model, "--only", "accuracy", "--tokens", "64")
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["b"]["device"] == "reference"
    assert all(text["mean_kl"] < 0.01 for text in found["texts"])


def test_two_models_of_one_tokenizer(run: Run, model: str, tmp_path: Path) -> None:
    other = write_runnable(tmp_path / "b", TinyLlama(vocab_size=320, num_layers=3, max_model_tokens=1024))
    result = run(f"model={model}", f"model={other}", "--only", "accuracy,layers", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert {t["num_tokens"] for t in found["texts"]} == {1023}  # as far as the shorter context reaches
    assert found["layers"] is None and found["skipped"] == ["layers: the models have other layers"]
    assert found["verdict"]["is_close"] is False


def test_models_of_two_tokenizers_are_refused_before_they_are_loaded(run: Run, model: str) -> None:
    result = run("fp32", "fp32,model=embedded", "--model", model, "--only", "accuracy")
    assert isinstance(result.exception, ConfigError) and "only models of one tokenizer" in str(result.exception)


def test_demands_that_are_not_met_fail_with_the_reason(run: Run, model: str) -> None:
    arguments = ("fp32", "bf16", "--model", model, "--only", "accuracy", "--tokens", "64")
    result = run(*arguments, "--max-kl", "0")
    assert result.exit_code == 1
    assert "prose: mean KL" in result.stderr and "is above 0" in result.stderr
    loose = run(
        "fp32", "bf16", "--model", model, "--only", "accuracy", "--tokens", "64", "--max-kl", "1", "--max-ppl", "9"
    )
    assert loose.exit_code == 0, loose.output


def test_a_context_too_small_for_the_lines_to_copy(run: Run, tmp_path: Path) -> None:
    path = write_runnable(tmp_path / "m", max_position_embeddings=100)
    result = run("fp32", "bf16", "--model", str(path), "--json", "--only", "accuracy,copies,speed", "--exact")
    assert isinstance(result.exception, ConfigError)  # without calls nothing is safe
    result = run("fp32", "bf16", "--model", str(path), "--json", "--only", "accuracy,layers,copies,speed")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["skipped"] == ["copies: the context is too small for them"] and found["copies"] == []
    assert found["texts"][0]["num_tokens"] == 99 and found["speeds"][0]["num_tokens"] == 100


def test_a_text_of_ones_own(run: Run, model: str, tmp_path: Path) -> None:
    (tmp_path / "[我的].txt").write_text("今天天气很好。" * 20, encoding="utf-8")
    result = run("fp32", "fp32", "--model", model, "--only", "accuracy", "--text", "[我的].txt")
    assert result.exit_code == 0, result.output
    assert "[我的].txt" in result.stdout and "prose" not in result.stdout and "419" in result.stdout


def test_where_both_have_no_room_each_is_timed_alone(run: Run, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second model is refused as long as the first is there."""
    load, refused = comparison.load, []

    def full(config: object, *rest: object) -> object:
        if config.precision == "bf16" and not refused:
            refused.append(config)
            raise NeverFits("full")
        return load(config, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(comparison, "load", full)
    result = run("fp32", "bf16", "--model", model, "--only", "speed", "--json")
    assert result.exit_code == 0, result.output
    assert refused and not any(s["is_interleaved"] for s in json.loads(result.stdout)["speeds"])
    refused.clear()
    result = run("fp32", "bf16", "--model", model, "--only", "layers")
    assert isinstance(result.exception, NeverFits)  # nothing that could make room


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fp32", "int3"), "'int3' is no precision"),
        (("fp32", "bf16", "--only", "speeed"), "--only: 'speeed'"),
        (("fp32", "bf16", "--only", "speed", "--max-kl", "1"), "--max-kl needs the part accuracy"),
        (("fp32", "bf16", "--only", "speed", "--plot", "x.svg"), "--plot needs the part accuracy"),
        (("fp32", "bf16", "--plot", "no/folder/x.svg"), "no file can be written there"),
        (("fp32", "bf16", "--text", "nowhere.txt"), "text nowhere.txt: No such file"),
        (("fp32", "bf16,model=/nowhere/x.gguf"), "no model at /nowhere/x.gguf"),
        (("fp32", "bf16/int8"), "kv_type"),
    ],
)
def test_wrong_input_is_named(run: Run, arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments)
    assert isinstance(result.exception, TenutoError) and message in str(result.exception)


def test_files_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "文"
    for content, message in ((b"", "is empty"), (b" \n", "is empty"), (b"a\xff", r"not UTF-8 \(byte 1\)")):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=message):
            read_text(path)
    with path.open("wb") as file:
        file.truncate(2**24 + 1)
    with pytest.raises(ConfigError, match="larger than 16 MiB"):
        read_text(path)


def test_the_texts_that_come_along_are_long_enough_and_hold_chinese() -> None:
    from embedded_tokenizer import embedded_tokenizer

    texts = {text.name: text.content for text in shipped_texts()}
    assert set(texts) == {"prose", "code"}
    for content in texts.values():
        assert 8192 < len(embedded_tokenizer().encode(content)) < 12_000
    assert sum("一" <= char <= "鿿" for char in texts["prose"]) > 900
