"""The one door: which reader a path needs."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tenuto.checkpoint.config import ModelConfig, TokenizerFiles
from tenuto.checkpoint.gguf_checkpoint import GGUFCheckpoint
from tenuto.checkpoint.gguf_format import MAGIC
from tenuto.checkpoint.hf_checkpoint import HFCheckpoint
from tenuto.checkpoint.stand_ins import BEGINNING_BYTES, refuse_stand_in
from tenuto.errors import ModelFileError, UnsupportedModel


class Checkpoint(Protocol):
    """A model's files, opened and checked; weights are read one tensor at a time."""

    @property
    def name(self) -> str:
        """What to call the model: the file's or directory's own name."""
        ...

    @property
    def path(self) -> Path: ...

    @property
    def config(self) -> ModelConfig: ...

    @property
    def tokenizer(self) -> TokenizerFiles: ...

    @property
    def fingerprint(self) -> str:
        """64 hex digits over headers, tokenizer and a sample of every tensor: differs when the model does."""
        ...

    def tensor_names(self) -> list[str]:
        """Neutral names (see `families`) of the weights in the file."""
        ...

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape in torch order, without reading the tensor."""
        ...

    def stored_type(self, name: str) -> str:
        """How the file stores it, e.g. "Q4_K" or "GPTQ 4-bit"."""
        ...

    def stored_bytes(self, name: str) -> int:
        """The bytes it takes in the file."""
        ...

    def read(self, name: str) -> npt.NDArray[np.float32]:
        """One tensor, dequantised to a new float32 array (exact for every stored type).

        Raises:
            ModelFileError: no such tensor, or the file changed under us; names file and tensor.
        """
        ...


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a GGUF file or a Hugging Face directory; every size is checked before anything is allocated.

    Raises:
        ModelFileError: missing, cut short or corrupt; names the file and, if any, the tensor.
        UnsupportedModel: sound, but needs a family, feature or tensor type that this version lacks.
    """
    if path.is_dir():
        return HFCheckpoint(path)
    if not path.exists():
        raise ModelFileError(f"{path}: no such file or directory")
    if not path.is_file():
        raise ModelFileError(f"{path}: neither a file nor a directory")  # a pipe would wait for ever to be written to
    try:
        with path.open("rb") as file:
            beginning = file.read(BEGINNING_BYTES)
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read ({error.strerror})") from error
    if beginning.startswith(MAGIC):
        return GGUFCheckpoint(path)
    refuse_stand_in(path, beginning)
    if path.suffix in (".bin", ".pt", ".pth", ".ckpt", ".pkl"):
        raise UnsupportedModel(f"{path}: pickled weights can run code and are never opened; convert to safetensors")
    if path.suffix == ".safetensors":
        raise ModelFileError(f"{path}: give the directory that also holds config.json and tokenizer.json")
    raise ModelFileError(f"{path}: neither a GGUF file nor a directory with config.json and safetensors")
