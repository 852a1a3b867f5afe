"""A GGUF model that is split into parts, `name-00001-of-00003.gguf` and so on, read as one.

As the ggml project's `gguf-split` writes them: the first part holds the metadata, each names its number and their
count (`split.no` from 0, `split.count`), and `split.tensors.count` is that of all tensors together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from tenuto.checkpoint.gguf_format import GGUFHeader, read_header
from tenuto.checkpoint.values import Values
from tenuto.checkpoint.weight_file import WeightFile
from tenuto.errors import ModelFileError

_PART_NAME = re.compile(r"(?P<name>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf", re.DOTALL)
_MAX_PARTS = 1000


@dataclass(frozen=True)
class GGUFModel:
    """One or more GGUF files, as one."""

    path: Path  # of the first part
    name: str  # the file's own, without what numbers the part
    headers: tuple[bytes, ...]
    whole: GGUFHeader  # the first part's metadata, everyone's tensors


def read_parts(path: Path) -> GGUFModel:
    """Read the headers of a file and of the parts it belongs to, whichever of them is given.

    Raises:
        ModelFileError: a part is missing, or not the one its name says; or as `read_header` does.
    """
    file = WeightFile(path)
    first = read_header(file)
    count = _number(path, first, "split.count", 1)
    if count == 1:
        return GGUFModel(path, path.stem, (first.raw,), first)
    paths = _part_paths(path, count)
    if path != paths[0]:
        first = read_header(WeightFile(paths[0]))
    tensors, headers = dict(first.tensors), [first.raw]
    _check_part(paths[0], first, 0, count)
    for index, part_path in enumerate(paths[1:], 1):
        part = read_header(WeightFile(part_path))
        _check_part(part_path, part, index, count)
        if twice := tensors.keys() & part.tensors.keys():
            raise ModelFileError(f"{part_path}: tensor {min(twice):.80} is in another part too")
        tensors |= part.tensors
        headers.append(part.raw)
    expected = _number(paths[0], first, "split.tensors.count", len(tensors))
    if expected != len(tensors):
        raise ModelFileError(f"{paths[0]}: {expected} tensors are promised, the {count} parts hold {len(tensors)}")
    return GGUFModel(paths[0], _stem(path), tuple(headers), replace(first, tensors=tensors))


def _part_paths(path: Path, count: int) -> list[Path]:
    found = _PART_NAME.fullmatch(path.name)
    if not 1 <= count <= _MAX_PARTS or found is None or int(found["count"]) != count:
        raise ModelFileError(
            f"{path}: it is one of {count} parts (split.count), "
            f"so it must be called {path.stem:.80}-00001-of-{count:05}.gguf or the like"
        )
    return [path.with_name(f"{found['name']}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]


def _check_part(path: Path, header: GGUFHeader, index: int, count: int) -> None:
    number, of = _number(path, header, "split.no", 0), _number(path, header, "split.count", 1)
    if (number, of) != (index, count):
        raise ModelFileError(f"{path}: by its own word it is part {number + 1} of {of}, not {index + 1} of {count}")


def _number(path: Path, header: GGUFHeader, key: str, default: int) -> int:
    return Values(path, header.metadata).integer(key, default)


def _stem(path: Path) -> str:
    found = _PART_NAME.fullmatch(path.name)
    assert found is not None
    return found["name"]
