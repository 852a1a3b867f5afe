"""SentencePiece's model file, a protobuf message, read with every length checked against the file.

Field numbers as in `sentencepiece_model.proto` of the SentencePiece project; wire format as in the Protocol Buffers
encoding guide. Unknown fields are skipped, as the format asks.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tenuto.checkpoint.json_file import read_file
from tenuto.errors import ModelFileError, UnsupportedModel

_MAX_FILE_BYTES = 64 * 2**20  # Gemma's has 5 MB
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_KINDS: dict[int, Literal["unigram", "bpe"]] = {1: "unigram", 2: "bpe"}

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

Value = int | bytes


@dataclass(frozen=True, kw_only=True)
class SentencePieceModel:
    """A vocabulary of SentencePiece's, from its own file or a GGUF file; ids are list positions."""

    kind: Literal["unigram", "bpe"]
    tokens: list[str] = field(repr=False)
    scores: list[float] = field(repr=False)
    types: list[int] = field(repr=False)  # NORMAL to BYTE, as above
    unknown_id: int | None
    add_dummy_prefix: bool  # a space before every text
    remove_extra_whitespaces: bool  # also at the ends
    charsmap: bytes = field(default=b"", repr=False)  # normalisation rules, compiled; empty for none


def read_sentencepiece(path: Path) -> SentencePieceModel:
    """
    Raises:
        ModelFileError: cut short, corrupt or no such file.
        UnsupportedModel: a vocabulary of whole words or single characters, or with white space after words.
    """
    data = read_file(path, _MAX_FILE_BYTES)
    try:
        return _read_model(data)
    except UnsupportedModel as error:
        raise UnsupportedModel(f"{path}: {error}") from error
    except (ValueError, IndexError, struct.error) as error:
        raise ModelFileError(f"{path}: not a SentencePiece model; it is cut short or corrupt ({error})") from error


def _read_model(data: bytes) -> SentencePieceModel:
    tokens: list[str] = []
    scores: list[float] = []
    types: list[int] = []
    trainer: dict[int, Value] = {}
    normalizer: dict[int, Value] = {}
    for number, value in _fields(data):
        if number == 1:
            piece = dict(_fields(_as_bytes(value)))
            tokens.append(_as_bytes(piece.get(1, b"")).decode("utf-8"))
            scores.append(struct.unpack("<f", _as_bytes(piece.get(2, bytes(4))))[0])
            types.append(_as_int(piece.get(3, NORMAL)))
        elif number == 2:
            trainer = dict(_fields(_as_bytes(value)))
        elif number == 3:
            normalizer = dict(_fields(_as_bytes(value)))
    if not tokens:
        raise ValueError("it has no tokens")
    kind = _as_int(trainer.get(3, 1))
    if kind not in _KINDS:
        raise UnsupportedModel("a SentencePiece model of words or characters is not supported; Unigram and BPE are")
    if _as_int(trainer.get(24, 0)):
        raise UnsupportedModel("a SentencePiece model with white space after words is not supported")
    if not _as_int(normalizer.get(5, 1)):
        raise UnsupportedModel("a SentencePiece model with unescaped white space is not supported")
    return SentencePieceModel(
        kind=_KINDS[kind],
        tokens=tokens,
        scores=scores,
        types=types,
        unknown_id=next((i for i, t in enumerate(types) if t == UNKNOWN), None),
        add_dummy_prefix=bool(normalizer.get(3, 1)),
        remove_extra_whitespaces=bool(normalizer.get(4, 1)),
        charsmap=_as_bytes(normalizer.get(2, b"")),
    )


def _fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """(field number, value) of a message: an int of a varint, the bytes of everything else."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            size, at = _varint(data, at)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"byte {at} begins a field of type {kind}")
        if size > len(data) - at:
            raise ValueError(f"a field of {size} bytes at {at} ends after {len(data)}")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError(f"a number before byte {at} is too long")


def _as_bytes(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("a number where text was expected")
    return value


def _as_int(value: Value) -> int:
    if not isinstance(value, int):
        raise ValueError("text where a number was expected")
    return value
