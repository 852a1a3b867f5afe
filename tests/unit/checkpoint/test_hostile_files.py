"""Files made to hurt: claims are not believed, nothing waits or crashes, and errors name file and tensor."""

from __future__ import annotations

import json
import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tenuto.checkpoint import open_checkpoint
from tenuto.errors import ModelFileError, UnsupportedModel
from tiny_models import TinyLlama, write_gguf, write_hf, write_sharded

TINY = TinyLlama(num_layers=1)


@pytest.fixture
def gguf_path(tmp_path: Path) -> Path:
    path = tmp_path / "模型.gguf"
    write_gguf(path, TINY, TINY.weights())
    return path


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write_hf(tmp_path / "model", TINY, TINY.weights())


def gguf_bytes(*entries: bytes, tensors: tuple[bytes, ...] = ()) -> bytes:
    return b"".join([b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(entries)), *entries, *tensors])


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def table_of(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Rewrite the header of a safetensors file."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    table = json.loads(data[8 : 8 + length])
    change(table)
    header = json.dumps(table).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + length :])


def peak_bytes(path: Path) -> int:
    """Memory at most in use while a file is refused."""
    tracemalloc.start()
    with pytest.raises(ModelFileError):
        open_checkpoint(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def test_empty_files(tmp_path: Path, directory: Path) -> None:
    (tmp_path / "empty.gguf").touch()
    with pytest.raises(ModelFileError, match=r"empty\.gguf"):
        open_checkpoint(tmp_path / "empty.gguf")
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        data = (directory / name).read_bytes()
        (directory / name).write_bytes(b"")
        with pytest.raises(ModelFileError, match=name):
            open_checkpoint(directory)
        (directory / name).write_bytes(data)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "chat_template.jinja"])
def test_a_folder_or_a_pipe_in_a_files_place(directory: Path, name: str) -> None:
    for make in (os.mkfifo, os.mkdir):
        (directory / name).unlink(missing_ok=True)
        make(directory / name)
        with pytest.raises(ModelFileError, match=rf"{name}: not a file"):
            open_checkpoint(directory)


def test_a_file_that_is_not_ours_to_read(gguf_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ModelFileError, match=r"模型\.gguf: cannot be read \(Permission denied\)"):
        open_checkpoint(gguf_path)


def test_links_of_the_hubs_cache_are_followed(tmp_path: Path) -> None:
    """B64: names may not leave the folder, links may: caches keep files elsewhere under their hash."""
    model, blobs = write_sharded(tmp_path / "snapshots" / "main", TINY, TINY.weights()), tmp_path / "blobs"
    blobs.mkdir()
    for index, path in enumerate(sorted(model.iterdir())):
        path.rename(blobs / str(index))
        path.symlink_to(Path("../../blobs") / str(index))
    assert open_checkpoint(model).read("norm.weight").shape == (64,)
    (model / "model-00002-of-00002.safetensors").resolve().unlink()
    with pytest.raises(ModelFileError, match=r"model-00002-of-00002\.safetensors: no such file"):
        open_checkpoint(model)


@pytest.mark.parametrize("change", ["shrinks", "grows", "is touched", "vanishes"])
def test_a_file_that_changes_under_us(tmp_path: Path, gguf_path: Path, directory: Path, change: str) -> None:
    for path, opened in ((gguf_path, gguf_path), (directory / "model.safetensors", directory)):
        checkpoint = open_checkpoint(opened)
        match change:
            case "shrinks":
                os.truncate(path, path.stat().st_size // 2)
            case "grows":
                os.truncate(path, path.stat().st_size * 2)
            case "is touched":
                os.utime(path, (1, 1))
            case _:
                path.unlink()
        with pytest.raises(ModelFileError, match=f"{path.name}: (the file changed|cannot be read)"):
            checkpoint.read("lm_head.weight")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"])
@pytest.mark.parametrize("bomb", ["[" * 200_000, '{"a":' * 200_000, "9" * 10_000, '{"a": ' + "9" * 10_000 + "}"])
def test_bombs_of_json(directory: Path, name: str, bomb: str) -> None:
    (directory / name).write_text(bomb)
    with pytest.raises(ModelFileError, match=name):
        open_checkpoint(directory)


def test_bombs_in_a_header(directory: Path) -> None:
    for bomb in (b"[" * 200_000, b'{"a":' * 200_000):
        (directory / "model.safetensors").write_bytes(len(bomb).to_bytes(8, "little") + bomb)
        with pytest.raises(ModelFileError, match=r"model\.safetensors: the header is not JSON"):
            open_checkpoint(directory)


def test_headers_larger_than_any(tmp_path: Path, directory: Path) -> None:
    """Sparse files make the claims true; they are refused all the same, before much is read."""
    path = directory / "model.safetensors"
    path.write_bytes((2**33).to_bytes(8, "little"))
    os.truncate(path, 2**34)
    assert peak_bytes(directory) < 10_000_000
    for kind, count in ((0, 2**33), (10, 2**30), (8, 2**29)):  # bytes, 64-bit numbers, strings
        gguf = tmp_path / f"{kind}.gguf"
        gguf.write_bytes(gguf_bytes(text(b"tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, kind, count)))
        os.truncate(gguf, 2**34)
        assert peak_bytes(gguf) < 10_000_000
    (directory / "config.json").write_bytes(b"{")
    os.truncate(directory / "config.json", 2**34)
    assert peak_bytes(directory) < 10_000_000


def test_names_given_twice(tmp_path: Path, directory: Path) -> None:
    twice = text(b"general.name") + struct.pack("<I", 8) + text(b"x")
    (tmp_path / "twice.gguf").write_bytes(gguf_bytes(twice, twice))
    with pytest.raises(ModelFileError, match=r"twice\.gguf: general\.name is given twice"):
        open_checkpoint(tmp_path / "twice.gguf")
    path = directory / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"model.layers.0.mlp.down_proj.weight"', b'"model.layers.0.mlp.gate_proj.weight"'))
    with pytest.raises(ModelFileError, match=r"model\.safetensors: the header names a tensor, or a key of one, twice"):
        open_checkpoint(directory)


def test_control_characters_in_names(tmp_path: Path, directory: Path) -> None:
    """Messages end up in terminals."""
    for name in ("\x1b[2Jx", "\ud800x", "a\nb"):
        table_of(directory / "model.safetensors", lambda table, name=name: table.update({name: table.popitem()[1]}))
        with pytest.raises(ModelFileError) as caught:
            open_checkpoint(directory)
        assert str(caught.value).isprintable()
    entry = text(b"\x1b[2J") + struct.pack("<IB", 0, 1)
    (tmp_path / "a.gguf").write_bytes(gguf_bytes(entry))
    with pytest.raises(ModelFileError) as caught:
        open_checkpoint(tmp_path / "a.gguf")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_no_numbers(tmp_path: Path, value: float) -> None:
    weights = TINY.weights()
    weights["model.layers.0.mlp.up_proj.weight"][3, 5] = value
    write_gguf(tmp_path / "m.gguf", TINY, weights)
    for path, name in (
        (tmp_path / "m.gguf", "blk.0.ffn_up.weight"),
        (write_hf(tmp_path / "hf", TINY, weights), "model.layers.0.mlp.up_proj.weight"),
    ):
        checkpoint = open_checkpoint(path)
        with pytest.raises(ModelFileError, match=f"tensor {name} holds values that are not numbers"):
            checkpoint.read("layers.0.mlp.up.weight")


@pytest.mark.parametrize("type_name", ["F64", "F8_E4M3", "I32", "BOOL"])
def test_types_that_weights_do_not_have_here(tmp_path: Path, type_name: str) -> None:
    size = {"F64": 8, "I32": 4}.get(type_name, 1)
    weights = TINY.weights()
    weights["model.norm.weight"] = np.zeros(64 * size // 4, np.float32)
    model = write_hf(tmp_path, TINY, weights)

    def retype(table: dict[str, Any]) -> None:
        table["model.norm.weight"] |= {"dtype": type_name, "shape": [64]}

    table_of(model / "model.safetensors", retype)
    with pytest.raises(UnsupportedModel, match=rf"tensor model\.norm\.weight has type {type_name}"):
        open_checkpoint(model)


def test_absurd_shapes(directory: Path) -> None:
    for shape in ([1] * 9, [2**62, 2**62], [10**4000], [0, 2**62]):
        table_of(
            directory / "model.safetensors", lambda table, s=shape: table["model.norm.weight"].update({"shape": s})
        )
        with pytest.raises(ModelFileError, match=r"tensor model\.norm\.weight") as caught:
            open_checkpoint(directory)
        assert len(str(caught.value)) < 500


def test_shards_and_their_index(tmp_path: Path) -> None:
    model = write_sharded(tmp_path, TINY, TINY.weights())
    index = model / "model.safetensors.index.json"
    where: dict[str, str] = json.loads(index.read_text())["weight_map"]
    first, second = sorted(set(where.values()))
    for change, named in (
        (where | {"extra.weight": first}, "extra.weight', which the index promises"),
        ({n: s for n, s in where.items() if n != "model.norm.weight"}, "model.norm.weight is not in model.safe"),
        ([], "weight_map is missing"),
        ({"a": 5}, "not a plain"),
    ):
        index.write_text(json.dumps({"weight_map": change}))
        with pytest.raises(ModelFileError, match=named):
            open_checkpoint(model)
    index.write_text(json.dumps({"weight_map": where}))
    (model / second).write_bytes((model / first).read_bytes())
    with pytest.raises(ModelFileError, match=rf"{second}: tensor .* is in {first} too"):
        open_checkpoint(model)
    index.unlink()
    with pytest.raises(ModelFileError, match=r"model\.safetensors\.index\.json, which lists the shards, is not"):
        open_checkpoint(model)
