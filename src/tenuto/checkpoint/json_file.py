"""Reads the JSON files of a Hugging Face directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tenuto.errors import ModelFileError


def read_json(path: Path, *, optional: bool = False) -> dict[str, Any]:
    """A JSON object from a file; {} if the file is optional and absent.

    Raises:
        ModelFileError: absent, not JSON or not an object.
    """
    if optional and not path.exists():
        return {}
    if path.exists() and not path.is_file():
        raise ModelFileError(f"{path}: not a file")  # a pipe would wait for ever to be written to
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path}: not JSON; it is cut short or corrupt") from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{path}: not a JSON object")
    return value
