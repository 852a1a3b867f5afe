"""Small tokenizer files of every kind, trained on the spot, and the library's reading of them."""

from __future__ import annotations

import json
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from varied_text import varied_lines

SPACE = "▁"
SPECIAL = ("<unk>", "<s>", "</s>")
TURN, CALL, SPELLING = "<|turn|>", "<tool_call>", "----"  # special; markup that is not; mere spelling
_BYTES = [f"<0x{b:02X}>" for b in range(256)]


@lru_cache(maxsize=1)
def _corpus() -> list[str]:
    return [line for line in varied_lines(400, seed=11) if "▁" not in line and "Ġ" not in line]


@lru_cache(maxsize=1)
def _trained_bpe() -> dict[str, Any]:
    made = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme="always")
    trainer = trainers.BpeTrainer(
        vocab_size=1500, special_tokens=[*SPECIAL, *_BYTES], limit_alphabet=400, show_progress=False
    )
    made.train_from_iterator(_corpus(), trainer)
    model: dict[str, Any] = json.loads(made.to_str())["model"]
    return model


def _sentencepiece_decoder(strips: bool) -> decoders.Decoder:
    strip = [decoders.Strip(" ", 1, 0)] if strips else []
    return decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip])


def sentencepiece_bpe(style: str) -> Tokenizer:
    """SentencePiece's BPE as files have it.

    Args:
        style: "prepend" (Llama 2), "first" or "always" (Metaspace), "gemma" (no prefix).
    """
    model = _trained_bpe()
    made = Tokenizer.from_str(json.dumps({"version": "1.0", "added_tokens": [], "model": model}))
    replace = normalizers.Replace(" ", SPACE)
    if style == "prepend":
        made.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), replace])
    elif style == "gemma":
        made.normalizer = replace
        made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    else:
        made.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme=style, split=False)
    made.decoder = _sentencepiece_decoder(style != "gemma")
    return with_added(made)


def with_added(made: Tokenizer, special: tuple[str, ...] = SPECIAL) -> Tokenizer:
    """With special tokens, markup and spelling added."""
    made.add_special_tokens([AddedToken(t, normalized=False) for t in (*special, TURN)])
    made.add_tokens([AddedToken(t, normalized=False) for t in (CALL, SPELLING)])
    return made


def unigram() -> Tokenizer:
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    made.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme="always")
    made.decoder = decoders.Metaspace(SPACE, prepend_scheme="always")
    trainer = trainers.UnigramTrainer(
        vocab_size=3000, special_tokens=list(SPECIAL), unk_token="<unk>", show_progress=False
    )
    common = [line for line in _corpus() if all(c < "\u0250" or c >= "一" for c in line)]
    made.train_from_iterator([*common, *["hello world, what a day"] * 50], trainer)
    return with_added(made)


def word_piece() -> Tokenizer:
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=1200, special_tokens=list(special), show_progress=False)
    made.train_from_iterator(_corpus(), trainer)
    return with_added(made, special)


def byte_level(add_prefix_space: bool = False) -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=1200, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(_corpus(), trainer)
    return with_added(made)


MADE = {
    "llama2": lambda: sentencepiece_bpe("prepend"),
    "metaspace-first": lambda: sentencepiece_bpe("first"),
    "metaspace-always": lambda: sentencepiece_bpe("always"),
    "gemma": lambda: sentencepiece_bpe("gemma"),
    "unigram": unigram,
    "wordpiece": word_piece,
    "byte-level": byte_level,
    "byte-level-prefix": lambda: byte_level(add_prefix_space=True),
}


@cache
def made(kind: str) -> Tokenizer:
    """As a file brings it: writing scores and reading them again may move their last bit."""
    return Tokenizer.from_str(MADE[kind]().to_str())


def saved(kind: str, folder: Path) -> Path:
    path = folder / "tokenizer.json"
    made(kind).save(str(path))
    return path
