"""Tiny models that run as they are: weights, a byte-level tokenizer and, if wanted, a chat template."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tiny_models import TinyLlama, write_hf, write_sharded

_SPECIAL = ("<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>")
RUNNABLE = TinyLlama(vocab_size=320)


def write_tokenizer(directory: Path) -> None:
    """Every byte is a token; ids 1 and 2 are those of `TinyLlama.hf_config`."""
    tokens = [*_SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    made = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(token, normalized=False) for token in _SPECIAL])
    made.save(str(directory / "tokenizer.json"))


def write_runnable(
    directory: Path, tiny: TinyLlama = RUNNABLE, *, sharded: bool = False, template: str | None = None, **config: Any
) -> Path:
    """`config` overrides keys of config.json."""
    if sharded:
        write_sharded(directory, tiny, tiny.weights())
        (directory / "config.json").write_text(json.dumps(tiny.hf_config() | config))
    else:
        write_hf(directory, tiny, tiny.weights(), **config)
    write_tokenizer(directory)
    if template is not None:
        (directory / "chat_template.jinja").write_text(template, encoding="utf-8")
    return directory
