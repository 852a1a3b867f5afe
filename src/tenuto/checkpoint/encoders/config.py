"""What a model file says about its encoder, in one neutral form whatever the format and family."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from tenuto.checkpoint.config import MAX_LAYERS
from tenuto.errors import ModelFileError

EncoderActivation: TypeAlias = Literal["gelu", "gelu_tanh"]
PoolingName: TypeAlias = Literal["first", "last", "mean"]

MAX_LABELS = 1 << 16

_SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_layers",
    "num_heads",
    "num_positions",
    "num_token_types",
)


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """Sizes and constants of a bidirectional encoder. Sizes are in elements, lengths in tokens."""

    family: str  # "bert", "xlm-roberta"
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int  # divides hidden_size
    layer_norm_eps: float
    num_positions: int  # rows of the table of positions
    position_offset: int  # position of a text's first token
    num_token_types: int
    activation: EncoderActivation = "gelu"
    num_labels: int | None = None  # of the classifier; None: the file has none

    @property
    def max_model_tokens(self) -> int:
        """The longest text, its frame of special tokens included."""
        return self.num_positions - self.position_offset

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_heads

    def check(self, path: Path) -> EncoderConfig:
        """Return self, or raise ModelFileError if the numbers cannot belong to a model."""
        problems = [
            f"{name} is {getattr(self, name)}, which no model has"
            for name in _SIZES
            if not 0 < getattr(self, name) < 2**31
        ]
        if problems:
            raise ModelFileError.of(path, problems)
        if self.num_layers > MAX_LAYERS:
            problems.append(f"num_layers is {self.num_layers}, more than {MAX_LAYERS}")
        if self.hidden_size % self.num_heads:
            problems.append(f"{self.num_heads} attention heads cannot share {self.hidden_size} features evenly")
        if not (self.layer_norm_eps > 0 and math.isfinite(self.layer_norm_eps)):
            problems.append(f"layer_norm_eps is {self.layer_norm_eps}; it must be positive")
        if not 0 <= self.position_offset < self.num_positions:
            problems.append(f"positions begin at {self.position_offset}, but there are {self.num_positions}")
        if self.num_labels is not None and not 0 < self.num_labels <= MAX_LABELS:
            problems.append(f"num_labels is {self.num_labels}; 1 to {MAX_LABELS} are possible")
        if problems:
            raise ModelFileError.of(path, problems)
        return self


@dataclass(frozen=True, kw_only=True)
class EmbeddingLayout:
    """How a model's makers want its hidden states turned into vectors, and its scores read."""

    pooling: PoolingName | None = None  # None: the files do not say
    normalise: bool | None = None  # vectors are brought to length 1; None: the files do not say
    max_model_tokens: int | None = None  # shorter than the model could, by the makers' advice
    lowercase: bool = False  # before the tokenizer, which may do so besides
    prompts: tuple[tuple[str, str], ...] = ()  # (name, text): written before an input, e.g. of a query
    default_prompt: str | None = None  # the name of the one that is used unless another is asked for
    sigmoid: bool = True  # scores of a cross-encoder are squeezed into 0 .. 1
