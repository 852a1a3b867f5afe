"""The same model for other engines: what is written stands for the same numbers."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from tenuto.bench.peers import model_files
from tenuto.checkpoint import open_checkpoint
from tenuto.errors import UnsupportedModel
from tiny_models import TinyLlama, write_gguf, write_hf

TINY = TinyLlama()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "小.gguf"
    write_gguf(path, TINY, TINY.weights(), "Q4_1", {"general.name": "小模型", "tokenizer.chat_template": "{{ 1 }}"})
    return path


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
def test_matrices_are_quantised_anew_and_all_else_stays(source: Path, tmp_path: Path, kind: str) -> None:
    target = tmp_path / f"{kind}.gguf"
    model_files.write_gguf(source, target, kind)  # type: ignore[arg-type]
    assert [path.name for path in tmp_path.iterdir()] == [target.name]
    before, after = open_checkpoint(source), open_checkpoint(target)
    assert after.config == before.config and after.tensor_names() == before.tensor_names()
    assert after.tokenizer.chat_template == before.tokenizer.chat_template == "{{ 1 }}"
    for name in before.tensor_names():
        values, stored = before.read(name), after.stored_type(name)
        if values.ndim == 1:
            assert stored == "F32" and np.array_equal(after.read(name), values)
            continue
        expected = "Q8_0" if name in ("embed.weight", "lm_head.weight") else kind
        assert stored == expected
        # Rows of Q and K are permuted in the file; each is quantised alone, so the values are those of any order.
        again = gguf.quants.dequantize(
            gguf.quants.quantize(values, gguf.GGMLQuantizationType[expected]), gguf.GGMLQuantizationType[expected]
        )
        assert np.array_equal(after.read(name), again.reshape(values.shape))


def test_a_directory_holds_the_very_numbers(source: Path, tmp_path: Path) -> None:
    before = open_checkpoint(source)
    model_files.write_hf_directory(before, tmp_path / "hf")
    (tmp_path / "hf" / "tokenizer.json").write_text("{}")
    after = open_checkpoint(tmp_path / "hf")
    assert after.config.num_heads == before.config.num_heads and after.config.ropes == before.config.ropes
    assert after.config.rms_norm_eps == before.config.rms_norm_eps and after.config.head_dim == before.config.head_dim
    assert sorted(after.tensor_names()) == sorted(before.tensor_names())
    for name in before.tensor_names():
        assert np.array_equal(after.read(name), before.read(name)), name


def test_what_cannot_be_converted_is_refused_by_name(tmp_path: Path) -> None:
    folder = write_hf(tmp_path / "hf", TINY, TINY.weights()) or tmp_path / "hf"
    with pytest.raises(UnsupportedModel, match="only a GGUF file"):
        model_files.write_gguf(folder, tmp_path / "x.gguf", "Q8_0")
