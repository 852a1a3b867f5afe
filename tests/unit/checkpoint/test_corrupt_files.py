"""Files that are cut, corrupt or lying end in an error that names file and tensor, before anything is allocated."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest

from tenuto.checkpoint import open_checkpoint
from tenuto.errors import ModelFileError, UnsupportedModel
from tiny_models import TinyLlama, write_gguf, write_hf, write_sharded

TINY = TinyLlama()


@pytest.fixture
def gguf_path(tmp_path: Path) -> Path:
    path = tmp_path / "模型.gguf"
    write_gguf(path, TINY, TINY.weights(), "Q8_0")
    return path


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write_hf(tmp_path / "model", TINY, TINY.weights())


def patch(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert data.count(old) == 1
    path.write_bytes(data.replace(old, new))


def row(name: str, *dims: int, type_id: int) -> bytes:
    """The beginning of a tensor's entry, as stored."""
    return struct.pack(f"<Q{len(name)}sI{len(dims)}QI", len(name), name.encode(), len(dims), *dims, type_id)


def test_gguf_cut_short_by_a_kilobyte(gguf_path: Path) -> None:
    gguf_path.write_bytes(gguf_path.read_bytes()[:-1024])
    with pytest.raises(ModelFileError, match=r"模型.gguf: tensor output.weight ends at byte .* cut short"):
        open_checkpoint(gguf_path)


def test_gguf_cut_anywhere_never_opens(gguf_path: Path) -> None:
    whole = gguf_path.read_bytes()
    for end in (*range(0, 300, 7), 1000, 2000, 4000, len(whole) - 1):
        gguf_path.write_bytes(whole[:end])
        with pytest.raises(ModelFileError, match="模型"):
            open_checkpoint(gguf_path)


def test_absurd_counts_are_refused_before_they_are_believed(gguf_path: Path) -> None:
    whole = gguf_path.read_bytes()
    for at in (8, 16):  # tensor count, metadata count
        gguf_path.write_bytes(whole[:at] + struct.pack("<Q", 2**62) + whole[at + 8 :])
        with pytest.raises(ModelFileError, match="a table of"):
            open_checkpoint(gguf_path)


def test_absurd_array_length(gguf_path: Path) -> None:
    key = b"tokenizer.ggml.token_type"
    patch(gguf_path, key + struct.pack("<IIQ", 9, 5, 64), key + struct.pack("<IIQ", 9, 5, 2**60))
    with pytest.raises(ModelFileError, match="token_type has 1152921504606846976 items"):
        open_checkpoint(gguf_path)


@pytest.mark.parametrize(("type_id", "label"), [(250, "unknown"), (9, "Q8_1"), (16, "IQ2_XXS"), (28, "F64")])
def test_unreadable_tensor_types_are_named(gguf_path: Path, type_id: int, label: str) -> None:
    """B74."""
    name = "blk.1.ffn_up.weight"
    patch(gguf_path, row(name, 64, 96, type_id=8), row(name, 64, 96, type_id=type_id))
    with pytest.raises(UnsupportedModel, match=rf"{name} has type {label} \(id {type_id}\)"):
        open_checkpoint(gguf_path)


def test_rows_that_do_not_fill_blocks(gguf_path: Path) -> None:
    name = "blk.1.ffn_up.weight"
    patch(gguf_path, row(name, 64, 96, type_id=8), row(name, 65, 96, type_id=8))
    with pytest.raises(ModelFileError, match=rf"{name} has rows of 65 elements"):
        open_checkpoint(gguf_path)


def test_enormous_dimensions(gguf_path: Path) -> None:
    name = "blk.1.ffn_up.weight"
    patch(gguf_path, row(name, 64, 96, type_id=8), row(name, 2**60, 2**60, type_id=8))
    with pytest.raises(ModelFileError, match=f"tensor {name} ends at byte"):
        open_checkpoint(gguf_path)


def test_the_file_label_is_not_trusted(tmp_path: Path) -> None:
    """B74: a label of Q4_K_M (15) or a made-up one says nothing about the tensors."""
    for label in (15, 9999):
        path = tmp_path / f"{label}.gguf"
        write_gguf(path, TINY, TINY.weights(), "Q4_1", {"general.file_type": label})
        assert open_checkpoint(path).read("norm.weight").shape == (64,)


def test_not_a_model(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("天气")
    (tmp_path / "empty").write_bytes(b"")
    for name in ("a.txt", "empty", "absent"):
        with pytest.raises(ModelFileError, match=name):
            open_checkpoint(tmp_path / name)


def test_pickles_are_never_opened(tmp_path: Path, directory: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04N.")
    with pytest.raises(UnsupportedModel, match="pickled"):
        open_checkpoint(tmp_path / "pytorch_model.bin")
    (directory / "model.safetensors").rename(directory / "pytorch_model.bin")
    with pytest.raises(UnsupportedModel, match="pickled"):
        open_checkpoint(directory)


def test_safetensors_cut_short_by_a_kilobyte(directory: Path) -> None:
    """B71."""
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1024])
    with pytest.raises(ModelFileError, match=r"model.safetensors: tensor .* cut short"):
        open_checkpoint(directory)


@pytest.mark.parametrize("length", [0, 1, 2**40, 2**63])
def test_safetensors_header_length_lies(directory: Path, length: int) -> None:
    path = directory / "model.safetensors"
    path.write_bytes(length.to_bytes(8, "little") + path.read_bytes()[8:])
    with pytest.raises(ModelFileError, match=r"model.safetensors: the header"):
        open_checkpoint(directory)


@pytest.mark.parametrize("change", ["shape", "dtype", "gap", "entry", "negative"])
def test_safetensors_tables_that_lie(directory: Path, change: str) -> None:
    path = directory / "model.safetensors"
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    table = json.loads(data[8 : 8 + length])
    entry = table["model.norm.weight"]
    match change:
        case "shape":
            entry["shape"] = [2**40]
        case "dtype":
            entry["dtype"] = "F8_E4M3"
        case "gap":
            entry["data_offsets"] = [n + 4 for n in entry["data_offsets"]]
        case "negative":
            entry["data_offsets"] = [-4, entry["data_offsets"][1]]
        case _:
            table["model.norm.weight"] = ["F32"]
    header = json.dumps(table).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + length :])
    with pytest.raises(ModelFileError, match=r"model.safetensors: tensor "):
        open_checkpoint(directory)


@pytest.mark.parametrize(
    "name", ["../../x", "../other/m.safetensors", "/etc/m.safetensors", "a\0.safetensors", "x.bin"]
)
def test_shard_names_must_be_plain(tmp_path: Path, name: str) -> None:
    """B64."""
    model = write_sharded(tmp_path / "model", TINY, TINY.weights())
    index = model / "model.safetensors.index.json"
    where = json.loads(index.read_text())["weight_map"] | {"lm_head.weight": name}
    index.write_text(json.dumps({"weight_map": where}))
    with pytest.raises(ModelFileError, match=r"is not a plain .safetensors file name"):
        open_checkpoint(model)


def test_missing_shard(tmp_path: Path) -> None:
    """B71."""
    model = write_sharded(tmp_path / "model", TINY, TINY.weights())
    (model / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ModelFileError, match=r"model-00002-of-00002.safetensors: no such file"):
        open_checkpoint(model)


def test_index_promises_a_tensor_that_its_shard_lacks(tmp_path: Path) -> None:
    model = write_sharded(tmp_path / "model", TINY, TINY.weights())
    index = model / "model.safetensors.index.json"
    where = json.loads(index.read_text())["weight_map"]
    where["model.norm.weight"], where["lm_head.weight"] = where["lm_head.weight"], where["model.norm.weight"]
    shards = sorted(set(where.values()))
    where["lm_head.weight"] = next(s for s in shards if s != where["lm_head.weight"])
    index.write_text(json.dumps({"weight_map": where}))
    with pytest.raises(ModelFileError, match="which the index promises"):
        open_checkpoint(model)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_json_that_is_missing_or_cut(directory: Path, name: str) -> None:
    (directory / name).write_text('{"model_type": "lla')
    with pytest.raises(ModelFileError, match=name):
        open_checkpoint(directory)
    (directory / name).unlink()
    with pytest.raises(ModelFileError, match=name):
        open_checkpoint(directory)


def test_a_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    path = tmp_path / "模型.gguf"
    os.mkfifo(path)
    with pytest.raises(ModelFileError, match=r"模型.gguf: neither a file nor a directory"):
        open_checkpoint(path)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"])
def test_a_pipe_in_a_directory_is_refused_too(directory: Path, name: str) -> None:
    (directory / name).unlink(missing_ok=True)
    os.mkfifo(directory / name)
    with pytest.raises(ModelFileError, match=f"{name}: not a file"):
        open_checkpoint(directory)
