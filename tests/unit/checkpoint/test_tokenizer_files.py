"""What directories and GGUF files say of their tokenizer, as far as reading goes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from real_tokenizers import mistral_path
from tenuto.checkpoint import ModelConfig, TokenizerFiles, open_checkpoint
from tenuto.checkpoint.gguf_config import read_tokenizer
from tenuto.checkpoint.sentencepiece_format import read_sentencepiece
from tenuto.errors import ModelFileError, UnsupportedModel
from tenuto.text.tokenizer import Tokenizer
from tiny_models import TinyLlama, write_hf

TINY = TinyLlama(vocab_size=32_800)
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁hello", "▁wor", "ld", "▁北", "▁,", "s"]


def directory(path: Path, **tokenizer_config: Any) -> Path:
    """A model with a tokenizer.model and no tokenizer.json."""
    write_hf(path, TINY, TINY.weights())
    (path / "tokenizer.json").unlink()
    (path / "tokenizer.model").write_bytes(mistral_path("v3").read_bytes())
    (path / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    return path


def test_a_tokenizer_model_is_read_where_there_is_no_json(tmp_path: Path) -> None:
    added = {"32768": {"content": "<|im_end|>", "special": True}, "99999999": {"content": "<far>", "special": True}}
    checkpoint = open_checkpoint(
        directory(tmp_path, bos_token="<s>", eos_token="<|im_end|>", added_tokens_decoder=added)
    )
    files = checkpoint.tokenizer
    assert files.json_path is None and files.sentencepiece is not None and files.sentencepiece.prefix == "first"
    assert (files.bos_id, files.eos_ids, files.add_bos) == (1, (2, 32768), True)
    tokenizer = Tokenizer.from_files(files, checkpoint.config.vocab_size)
    assert tokenizer.eos_ids == {2, 32768} and tokenizer.decode(tokenizer.encode("你好 wörld")) == "你好 wörld"
    other = directory(tmp_path / "legacy", legacy=True, add_bos_token=False)
    legacy = open_checkpoint(other).tokenizer
    assert legacy.sentencepiece is not None and legacy.sentencepiece.prefix == "sections" and not legacy.add_bos
    assert open_checkpoint(other).fingerprint != checkpoint.fingerprint


def test_neither_file_is_an_error_that_names_what_is_missing(tmp_path: Path) -> None:
    path = directory(tmp_path)
    (path / "tokenizer.model").unlink()
    with pytest.raises(ModelFileError, match=r"tokenizer\.json"):
        open_checkpoint(path)
    (path / "tokenizer.model").write_bytes(b"\x0a\xff")
    with pytest.raises(ModelFileError, match=r"tokenizer\.model: not a SentencePiece model"):
        open_checkpoint(path)


def test_models_of_words_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(b"\x0a\x03\x0a\x01a" + b"\x12\x02\x18\x03")  # one piece; a trainer with model_type 3
    with pytest.raises(UnsupportedModel, match="words or characters"):
        read_sentencepiece(path)


def from_metadata(config: ModelConfig, **metadata: Any) -> TokenizerFiles:
    values = {f"tokenizer.ggml.{key}": value for key, value in metadata.items()}
    return read_tokenizer(Path("model.gguf"), values, config)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> ModelConfig:
    tiny = TinyLlama()
    found = open_checkpoint(write_hf(tmp_path_factory.mktemp("tiny"), tiny, tiny.weights())).config
    return replace(found, vocab_size=40_000)


def test_sentencepiece_in_gguf_equals_the_file_it_came_from(config: ModelConfig) -> None:
    model = read_sentencepiece(mistral_path("v3"))
    files = from_metadata(config, model="llama", tokens=model.tokens, token_type=model.types, scores=model.scores)
    tokenizer = Tokenizer.from_files(files)
    assert files.add_bos and tokenizer.decode(tokenizer.encode("Héllo  wörld 😀\n")) == "Héllo  wörld 😀\n"
    assert tokenizer.encode("▁a") == tokenizer.encode(" a") != tokenizer.encode("a")
    bare = from_metadata(
        config, model="llama", tokens=model.tokens, token_type=model.types, scores=model.scores, add_space_prefix=False
    )
    assert Tokenizer.from_files(bare).encode(" a") == tokenizer.encode("a")


def test_word_pieces_in_gguf(config: ModelConfig) -> None:
    types = [3, 3, 3, 3, *[1] * (len(WORDS) - 4)]
    tokenizer = Tokenizer.from_files(from_metadata(config, model="bert", tokens=WORDS, token_type=types))
    ids = tokenizer.encode("Hello, WORLDS 北 [CLS] 天")
    assert [WORDS[i] for i in ids] == ["▁hello", "▁,", "▁wor", "ld", "s", "▁北", *["[UNK]"] * 4]
    assert tokenizer.decode(ids[:6]) == "hello , worlds 北"


def test_files_that_make_no_sense_are_refused_with_their_name(config: ModelConfig) -> None:
    for metadata in (
        {"model": "llama", "tokens": ["a", "b"], "scores": [0.0]},
        {"model": "llama", "tokens": ["a", "b"]},
        {"model": "gpt2", "tokens": [1, 2]},
        {"model": "gpt2", "tokens": ["a", "a"], "pre": "gpt-2"},
        {"model": "bert", "tokens": ["a"]},
        {"model": "t5", "tokens": ["a"], "scores": [0.0], "precompiled_charsmap": [255, 255, 255, 255, 1]},
    ):
        with pytest.raises(ModelFileError, match=r"model\.gguf"):
            Tokenizer.from_files(from_metadata(config, **metadata))
    for model, pre, named in (("rwkv", "x", "'rwkv'"), ("gpt2", "brand-new", "'brand-new'")):
        with pytest.raises(UnsupportedModel, match=named):
            Tokenizer.from_files(from_metadata(config, model=model, tokens=["a"], pre=pre))
