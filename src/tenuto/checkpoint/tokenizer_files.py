"""What a model's files say about its tokenizer: plain values, read by `checkpoint`, used by `text`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class GGUFTokenizer:
    """The tokenizer that a GGUF file carries in its metadata."""

    kind: str  # tokenizer.ggml.model: "gpt2" (byte-level BPE), "llama" (SentencePiece), ...
    pre: str  # tokenizer.ggml.pre: name of the pre-tokenizer; "" if the file does not say
    tokens: list[str]  # by id
    token_types: list[int]  # by id: 1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
    merges: list[str]  # "left right", in rank order


@dataclass(frozen=True)
class TokenizerFiles:
    """Either `json_path` or `gguf` is given."""

    json_path: Path | None  # tokenizer.json of a Hugging Face directory
    gguf: GGUFTokenizer | None
    bos_id: int | None
    eos_ids: tuple[int, ...]  # union of all of the model's configs
    add_bos: bool
    chat_template: str | None
