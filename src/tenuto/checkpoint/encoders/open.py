"""The one door to encoders."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tenuto.checkpoint.config import TokenizerFiles
from tenuto.checkpoint.encoders.config import EmbeddingLayout, EncoderConfig
from tenuto.checkpoint.encoders.gguf import GGUF_ARCHITECTURES, GGUFEncoderCheckpoint, read_gguf_layout
from tenuto.checkpoint.encoders.hf import HFEncoderCheckpoint, encoder_family
from tenuto.checkpoint.encoders.layout import read_layout
from tenuto.checkpoint.gguf_format import MAGIC, read_architecture
from tenuto.checkpoint.json_file import read_json
from tenuto.checkpoint.weight_file import WeightFile


class EncoderCheckpoint(Protocol):
    """An encoder's files, opened and checked; weights are read one tensor at a time."""

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> Path: ...

    @property
    def config(self) -> EncoderConfig: ...

    @property
    def layout(self) -> EmbeddingLayout: ...

    @property
    def tokenizer(self) -> TokenizerFiles: ...

    @property
    def fingerprint(self) -> str: ...

    def tensor_names(self) -> list[str]:
        """Neutral names (see `encoders.names`) of the weights in the file."""
        ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def read(self, name: str) -> npt.NDArray[np.float32]: ...


def is_encoder(path: Path) -> bool:
    """Whether the model at a path is an encoder of a family we know; a path that is no model is not.

    Raises:
        ModelFileError: its config.json or header is corrupt.
    """
    if (path / "config.json").is_file():
        return encoder_family(read_json(path / "config.json").get("model_type")) is not None
    return _is_gguf(path) and read_architecture(WeightFile(path)) in GGUF_ARCHITECTURES


def open_encoder(path: Path) -> EncoderCheckpoint:
    """Open a GGUF file or a Hugging Face directory; every size is checked before anything is allocated.

    Raises:
        ModelFileError: missing, cut short or corrupt; names the file and, if any, the tensor.
        UnsupportedModel: sound, but no encoder of a family we know, or in need of something we do not do.
    """
    return GGUFEncoderCheckpoint(path) if _is_gguf(path) else HFEncoderCheckpoint(path)


def read_embedding_layout(path: Path) -> EmbeddingLayout:
    """What the files of any model, a decoder's too, say of its use for embedding. Raises as `open_encoder`."""
    if path.is_dir():
        return read_layout(path, read_json(path / "config.json"))
    return read_gguf_layout(path) if _is_gguf(path) else EmbeddingLayout()


def _is_gguf(path: Path) -> bool:
    if not path.is_file():
        return False
    with WeightFile(path).open() as file:
        return file.read(len(MAGIC)) == MAGIC
