"""A GGUF model split into parts is one model; a part that is missing or another's is named."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import gguf
import numpy as np
import pytest

from tenuto.checkpoint import open_checkpoint
from tenuto.errors import ModelFileError
from tiny_models import TinyLlama, gguf_name, interleave, write_gguf

TINY = TinyLlama()


def write_parts(directory: Path, seed: int = 0, per_part: int = 8) -> list[Path]:
    """As the gguf package splits it."""
    directory.mkdir(parents=True, exist_ok=True)
    write_gguf(directory / "whole", TINY, TINY.weights(seed))
    reader = gguf.GGUFReader(directory / "whole")
    writer = gguf.GGUFWriter(None, "llama", split_max_tensors=per_part)
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            writer.add_key_value(field.name, field.contents(), *field.types[:2])
    for name, values in TINY.weights(seed).items():
        heads = {"q_proj": TINY.num_heads, "k_proj": TINY.num_kv_heads}.get(name.split(".")[-2])
        writer.add_tensor(gguf_name(name), interleave(values, heads) if heads else values)
    writer.write_header_to_file(directory / "模型.gguf")
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (directory / "whole").unlink()
    return sorted(directory.glob("*.gguf"))


@pytest.mark.parametrize("given", [0, 1, 2])
def test_any_part_opens_the_whole_model(tmp_path: Path, given: int) -> None:
    parts = write_parts(tmp_path / "parts")
    assert [p.name for p in parts] == [f"模型-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    write_gguf(tmp_path / "whole.gguf", TINY, TINY.weights())
    whole, split = open_checkpoint(tmp_path / "whole.gguf"), open_checkpoint(parts[given])
    assert split.name == "模型" and split.config == whole.config
    assert set(split.tensor_names()) == set(whole.tensor_names())
    for name in whole.tensor_names():
        np.testing.assert_array_equal(split.read(name), whole.read(name))


def test_every_part_counts_in_the_fingerprint(tmp_path: Path) -> None:
    prints = {open_checkpoint(write_parts(tmp_path / str(seed), seed)[0]).fingerprint for seed in (0, 1)}
    assert len(prints) == 2
    assert open_checkpoint(write_parts(tmp_path / "again", 1)[2]).fingerprint in prints


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    first, second, _ = write_parts(tmp_path)
    second.unlink()
    with pytest.raises(ModelFileError, match=r"模型-00002-of-00003.gguf: no such file"):
        open_checkpoint(first)


def test_a_part_under_another_name_is_told(tmp_path: Path) -> None:
    first, second, third = write_parts(tmp_path)
    shutil.copy(second, third)
    with pytest.raises(ModelFileError, match=r"00003-of-00003.gguf: by its own word it is part 2 of 3, not 3 of 3"):
        open_checkpoint(first)
    alone = tmp_path / "alone.gguf"
    first.rename(alone)
    with pytest.raises(ModelFileError, match=r"alone.gguf: it is one of 3 parts"):
        open_checkpoint(alone)


def test_tensors_of_parts_are_counted_and_told_apart(tmp_path: Path) -> None:
    first, second, _ = write_parts(tmp_path)
    data = second.read_bytes()
    names = [gguf_name(name).encode() for name in TINY.weights()]
    in_second = next(n for n in names if n in data and b"blk.0" in n)
    in_first = next(n for n in names if n in first.read_bytes() and len(n) == len(in_second) and n != in_second)
    second.write_bytes(data.replace(in_second, in_first))
    with pytest.raises(ModelFileError, match=re.escape(f"tensor {in_first.decode()} is in another part too")):
        open_checkpoint(first)
    second.write_bytes(data)
    counted = first.read_bytes()
    at = counted.index(b"split.tensors.count") + len(b"split.tensors.count") + 4
    first.write_bytes(counted[:at] + (99).to_bytes(4, "little") + counted[at + 4 :])
    with pytest.raises(ModelFileError, match="99 tensors are promised, the 3 parts hold 21"):
        open_checkpoint(first)
