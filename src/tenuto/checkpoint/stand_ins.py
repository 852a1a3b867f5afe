"""What people have in place of a model's file or folder, told by what it is and what to do about it."""

from __future__ import annotations

from pathlib import Path

from tenuto.errors import ModelFileError, UnsupportedModel

BEGINNING_BYTES = 64  # as many as `refuse_stand_in` wants to see
_LFS = b"version https://git-lfs.github.com/"
_PAGES = (b"<!doctype html", b"<html")

_ADAPTER = "a LoRA adapter, which changes another model: merge it into that one, and give the result"


def refuse_stand_in(path: Path, beginning: bytes) -> None:
    """Raises ModelFileError for a file that is there only by name: Git LFS's pointer to it, or a page that says no."""
    if beginning.startswith(_LFS):
        raise ModelFileError(f"{path}: only Git LFS's pointer to the file: `git lfs pull` fetches the file itself")
    if beginning.lstrip().lower().startswith(_PAGES):
        raise ModelFileError(f"{path}: a web page, not the file: fetch it again")


def require_config(folder: Path) -> None:
    """A folder without config.json is told by what else is in it.

    Raises:
        ModelFileError: no model at all, or one in another layout.
        UnsupportedModel: something that is no language model by itself.
    """
    if (folder / "config.json").exists():
        return
    if (folder / "adapter_config.json").exists():
        raise UnsupportedModel(f"{folder}: {_ADAPTER}")
    if (folder / "model_index.json").exists():
        raise UnsupportedModel(f"{folder}: a diffusion pipeline, which makes pictures; language models run here")
    if (folder / "params.json").exists():
        raise UnsupportedModel(
            f"{folder}: a model in its maker's own layout (params.json); give the Hugging Face layout, with config.json"
        )
    raise ModelFileError(f"{folder}: no config.json and no GGUF file in there, so no model that we can read")


def refuse_gguf_kind(path: Path, kind: object, architecture: object) -> None:
    """GGUF also carries what is no model by itself. `kind` is `general.type`. Raises UnsupportedModel."""
    if kind == "adapter":
        raise UnsupportedModel(f"{path}: {_ADAPTER}")
    if kind == "mmproj" or architecture == "clip":
        raise UnsupportedModel(f"{path}: a projector of pictures or sound (mmproj): give the language model beside it")
    if kind in ("imatrix", "vocab"):
        raise UnsupportedModel(f"{path}: a file for making models ({kind}), without a model in it")
