"""A vocabulary of SentencePiece's kind, from its own model file or a GGUF file.

Kudo and Richardson, "SentencePiece", 2018. Text is normalised, spaces are written as U+2581, and what the vocabulary
has no token for falls back to bytes, where it has tokens for those.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

import tokenizers
from tokenizers import AddedToken, models

from tenuto.checkpoint import SentencePieceFile
from tenuto.checkpoint.sentencepiece_format import (
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    SentencePieceModel,
)
from tenuto.errors import ModelFileError
from tenuto.text.byte_level import byte_of
from tenuto.text.charsmap import CharsMap
from tenuto.text.control_strings import ControlStrings
from tenuto.text.cuts import BetweenStrangers
from tenuto.text.library_tokenizer import LibraryTokenizer, library_errors
from tenuto.text.vocabulary import IMPOSSIBLE, MAX_TOKENS, Prefix, Vocabulary, is_markup

SPACE = "▁"
_MANY_SPACES = re.compile(" {2,}")


def from_sentencepiece_file(file: SentencePieceFile, vocab_size: int | None) -> Vocabulary:
    """
    Args:
        vocab_size: the model's. Tokens that are added beyond it are left out.

    Raises:
        ModelFileError: lists that do not fit each other, ids out of range.
    """
    added = {i: token for i, token in file.added.items() if vocab_size is None or i < vocab_size}
    return from_sentencepiece(file.model, where=str(file.path), prefix=file.prefix, added=added)


def from_sentencepiece(
    model: SentencePieceModel, *, where: str, prefix: Prefix, added: Mapping[int, tuple[str, bool]] | None = None
) -> Vocabulary:
    """
    Args:
        where: names the file, in messages.
        prefix: where a space goes, if the model asks for one at all.
        added: tokens of the model's other files, by id: their text, and whether they are special.

    Raises:
        ModelFileError: lists that do not fit each other, ids out of range.
    """
    tokens, types = _with_added(model, dict(added or {}), where)
    control = {t: i for i, t in tokens.items() if types[i] in (CONTROL, UNKNOWN)}
    control |= {t: i for i, t in tokens.items() if types[i] == USER_DEFINED and is_markup(t)}
    special = frozenset(i for i, kind in types.items() if kind in (CONTROL, UNKNOWN))
    spelling = {t.replace(" ", SPACE): i for i, t in tokens.items() if types[i] == USER_DEFINED and t not in control}
    with library_errors(where):
        built = (
            _bpe(model, tokens, types, spelling) if model.kind == "bpe" else _unigram(model, tokens, types, spelling)
        )
        built.add_tokens([AddedToken(t, normalized=False) for t in spelling])
        prepare = _Normalizer(model, spelling, where)

    ids = range(max(tokens) + 1)

    def mergeable() -> Collection[str]:
        return [t for i, t in tokens.items() if types[i] == NORMAL]

    return Vocabulary(
        library=LibraryTokenizer(
            built,
            built,
            where=where,
            # A token of several characters that stands as a whole, like a run of spaces, must not be cut either.
            can_cut=BetweenStrangers(lambda: [*mergeable(), *spelling], SPACE),
            prepare=prepare,
        ),
        token_bytes=tuple(_bytes_at(tokens.get(i, ""), types.get(i), tokens.get(i) in control) for i in ids),
        control=control,
        special=special,
        prefix=prefix if model.add_dummy_prefix else "never",
        strips_space=model.add_dummy_prefix,
    )


def _with_added(
    model: SentencePieceModel, added: dict[int, tuple[str, bool]], where: str
) -> tuple[dict[int, str], dict[int, int]]:
    num_tokens = len(model.tokens)
    if not num_tokens == len(model.scores) == len(model.types):
        raise ModelFileError(
            f"{where}: {num_tokens} tokens, but {len(model.scores)} scores and {len(model.types)} token types"
        )
    tokens, types = dict(enumerate(model.tokens)), dict(enumerate(model.types))
    for i, (text, special) in sorted(added.items()):
        if not 0 <= i < MAX_TOKENS:
            raise ModelFileError(f"{where}: token {text!r:.80} has id {i}; ids go from 0 to {MAX_TOKENS}")
        tokens[i] = text
        types[i] = CONTROL if special else USER_DEFINED
    named = [t for i, t in tokens.items() if types[i] != BYTE]
    if len(set(named)) != len(named):
        raise ModelFileError(f"{where}: the same token is listed twice")
    return tokens, types


def _bytes_at(token: str, kind: int | None, is_control: bool) -> bytes:
    if kind == BYTE and (byte := byte_of(token)) is not None:
        return bytes([byte])
    return (token if is_control else token.replace(SPACE, " ")).encode("utf-8")


def _bpe(
    model: SentencePieceModel, tokens: Mapping[int, str], types: Mapping[int, int], spelling: Mapping[str, int]
) -> tokenizers.Tokenizer:
    normal = {tokens[i]: i for i in tokens if types[i] == NORMAL}
    vocab: dict[str, int] = {**normal, **spelling, **{tokens[i]: i for i in tokens if types[i] == BYTE}}
    unknown: dict[str, Any] = {}
    if model.unknown_id is not None:
        vocab[IMPOSSIBLE] = model.unknown_id
        unknown = {"unk_token": IMPOSSIBLE}
    merges = merges_of(normal, model.scores)
    return tokenizers.Tokenizer(models.BPE(vocab, merges, fuse_unk=True, byte_fallback=True, **unknown))


def merges_of(normal: Mapping[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """The merges that a vocabulary with scores implies: any two tokens that make a third, the best third first.

    Of two pairs that make the same token, the one with the shorter left side comes first. SentencePiece would take the
    leftmost in the text; the two differ only where both pairs share a token, which takes runs of one character, and
    those are merged from the left in either order.
    """
    ranked = [
        (-scores[i], i, at)
        for token, i in normal.items()
        for at in range(1, len(token))
        if i < len(scores) and token[:at] in normal and token[at:] in normal
    ]
    ranked.sort()
    names = {i: token for token, i in normal.items()}
    return [(names[i][:at], names[i][at:]) for _, i, at in ranked]


def _unigram(
    model: SentencePieceModel, tokens: Mapping[int, str], types: Mapping[int, int], spelling: Mapping[str, int]
) -> tokenizers.Tokenizer:
    kept = {i: tokens[i] for i in tokens if types[i] in (NORMAL, BYTE)} | {i: t for t, i in spelling.items()}
    lowest = min((model.scores[i] for i, t in enumerate(model.types) if t == NORMAL), default=0.0)
    vocab = [
        (kept.get(i, f"{IMPOSSIBLE}{i}"), model.scores[i] if i in kept and i < len(model.scores) else lowest)
        for i in range(max(tokens) + 1)
    ]
    has_bytes = sum(t == BYTE for t in model.types) == 256
    return tokenizers.Tokenizer(models.Unigram(vocab, model.unknown_id, has_bytes))


class _Normalizer:
    """What SentencePiece does to a text before it looks for tokens. User-defined ones are left as they are."""

    def __init__(self, model: SentencePieceModel, spelling: Collection[str], where: str) -> None:
        self._charsmap = CharsMap(model.charsmap, where) if model.charsmap else None
        self._spelling = ControlStrings(spelling)
        self._strips = model.remove_extra_whitespaces

    def __call__(self, text: str, prefixed: bool) -> str:
        if self._charsmap is not None:
            split = self._spelling.split(text)
            text = "".join(part for between, token in split for part in (self._charsmap(between), token or ""))
        if self._strips:
            text = _MANY_SPACES.sub(" ", text.strip(" "))
        text = text.replace(" ", SPACE)
        return SPACE + text if prefixed and text else text
