"""What a model file says about its model, in one neutral form whatever the format and family."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tenuto.errors import ModelFileError


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Sizes and constants of a decoder. Sizes are in elements, lengths in tokens."""

    family: str  # "llama"
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int  # divides num_heads
    head_dim: int  # even; num_heads * head_dim need not be hidden_size
    rms_norm_eps: float
    rope_theta: float
    max_model_tokens: int  # the context the model was made for
    tie_embeddings: bool  # the file has no output head of its own: logits come from the embedding
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()

    def check(self, path: Path) -> ModelConfig:
        """Return self, or raise ModelFileError if the numbers cannot belong to a model."""
        sizes = (
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_layers",
            "num_heads",
            "num_kv_heads",
            "head_dim",
            "max_model_tokens",
        )
        for name in sizes:
            if not 0 < getattr(self, name) < 2**31:
                raise ModelFileError(f"{path}: {name} is {getattr(self, name)}, which no model has")
        if self.num_heads % self.num_kv_heads:
            raise ModelFileError(
                f"{path}: {self.num_heads} attention heads cannot share {self.num_kv_heads} KV heads evenly"
            )
        if self.head_dim % 2:
            raise ModelFileError(f"{path}: head_dim is {self.head_dim}; rotary positions need an even number")
        if not self.rms_norm_eps > 0 or not self.rope_theta > 0:
            raise ModelFileError(
                f"{path}: rms_norm_eps {self.rms_norm_eps} and rope_theta {self.rope_theta} must both be positive"
            )
        check_ids(path, self.vocab_size, {"bos": self.bos_id, **{f"eos[{i}]": e for i, e in enumerate(self.eos_ids)}})
        return self


def check_ids(path: Path, vocab_size: int, ids: dict[str, int | None]) -> None:
    """Raise ModelFileError for a special token id outside the vocabulary."""
    for name, value in ids.items():
        if value is not None and not 0 <= value < vocab_size:
            raise ModelFileError(f"{path}: {name} token id {value} lies outside the vocabulary of {vocab_size}")


@dataclass(frozen=True, kw_only=True)
class GGUFTokenizer:
    """The tokenizer as a GGUF file stores it; ids are list positions."""

    kind: str  # tokenizer.ggml.model: "gpt2" (byte-level BPE) or "llama" (SentencePiece)
    pre: str  # name of the pre-tokenizer, "default" if the file names none
    tokens: list[str]
    token_types: list[int]  # 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
    merges: list[str]  # "left right"; empty for "llama"
    scores: list[float]  # of "llama"; empty for "gpt2"
    add_space_prefix: bool


@dataclass(frozen=True, kw_only=True)
class TokenizerFiles:
    """What `text` needs to build a tokenizer: exactly one of `json_path` and `gguf` is given."""

    json_path: Path | None = None  # tokenizer.json of a Hugging Face directory
    gguf: GGUFTokenizer | None = None
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()  # union over all files that name one, ascending
    add_bos: bool = False
    chat_template: str | None = None  # Jinja source
