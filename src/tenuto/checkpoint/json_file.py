"""Reads the small files of a Hugging Face directory, never more of them than any model has."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tenuto.checkpoint.stand_ins import BEGINNING_BYTES, refuse_stand_in
from tenuto.errors import ModelFileError

# The largest index known has 9 MB. JSON takes some 20 times its size once it is parsed.
_MAX_BYTES = 50_000_000
MAX_TOKENIZER_BYTES = 256 << 20  # Gemma's has 33 MB


def read_json(path: Path, *, optional: bool = False, max_bytes: int = _MAX_BYTES) -> dict[str, Any]:
    """A JSON object from a file; {} if the file is optional and absent.

    Raises:
        ModelFileError: absent, too large, not JSON or not an object.
    """
    if optional and not path.exists():
        return {}
    try:
        value = json.loads(read_file(path, max_bytes))
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path}: not JSON; it is cut short or corrupt") from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{path}: not a JSON object")
    return value


def read_file(path: Path, max_bytes: int = _MAX_BYTES) -> bytes:
    """All of a file.

    Raises:
        ModelFileError: absent, not a file, not ours to read, larger than `max_bytes`, or a stand-in for the file.
    """
    try:
        if path.exists() and not path.is_file():
            raise ModelFileError(f"{path}: not a file")  # a pipe would wait for ever to be written to
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > max_bytes:
                raise ModelFileError(f"{path}: {size} bytes; no such file has more than {max_bytes}")
            content = file.read(size)
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read ({error.strerror})") from error
    refuse_stand_in(path, content[:BEGINNING_BYTES])
    return content
