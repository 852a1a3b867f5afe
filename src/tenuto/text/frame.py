"""The special tokens that a model wants around one text, or around two that it compares.

Encoders were trained with a start and a separator, embedding decoders often with an end. tokenizer.json holds the
frame as a post-processor (the `tokenizers` documentation, "Post-processors"); nothing else of it is used here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from tenuto.checkpoint import TokenizerFiles
from tenuto.checkpoint.json_file import read_json
from tenuto.errors import ModelFileError, UnsupportedModel
from tenuto.ids import TokenId
from tenuto.text.tokenizer import Tokenizer

Place: TypeAlias = Literal["A", "B"]

_MAX_PIECES = 64


class FramedText(NamedTuple):
    """What a model reads: ids, special ones included, and the token type of each."""

    ids: tuple[TokenId, ...]
    types: tuple[int, ...]


class Piece(NamedTuple):
    """A part of a frame: special ids, or the place of a text."""

    content: Place | tuple[TokenId, ...]
    type_id: int


@dataclass(frozen=True)
class Frame:
    single: tuple[Piece, ...] = (Piece("A", 0),)
    pair: tuple[Piece, ...] | None = None  # None: the model does not read pairs

    def num_special(self, *, pair: bool = False) -> int:
        """Tokens that the frame adds."""
        pieces = self.pair if pair else self.single
        return sum(len(piece.content) for piece in pieces or () if isinstance(piece.content, tuple))

    def around(self, text: Sequence[TokenId], second: Sequence[TokenId] | None = None) -> FramedText:
        """One text framed, or two in the frame of a pair, which must exist."""
        pieces = self.single if second is None else self.pair
        assert pieces is not None, "the frame takes no pairs"
        ids: list[TokenId] = []
        types: list[int] = []
        for piece in pieces:
            if isinstance(piece.content, tuple):
                part: Sequence[TokenId] = piece.content
            else:
                part = text if piece.content == "A" else second or ()
            ids += part
            types += [piece.type_id] * len(part)
        return FramedText(tuple(ids), tuple(types))

    def with_types(self, num_token_types: int) -> Frame:
        """The frame for a model with so many token types; with one, they make no difference.

        Raises:
            ModelFileError: a type that the model does not have.
        """
        if num_token_types == 1:
            return Frame(*(None if p is None else tuple(x._replace(type_id=0) for x in p) for p in self._both))  # type: ignore[arg-type]
        highest = max(piece.type_id for pieces in self._both for piece in pieces or ())
        if highest >= num_token_types:
            raise ModelFileError(f"tokenizer: token type {highest} is outside the model's {num_token_types} types")
        return self

    @property
    def _both(self) -> tuple[tuple[Piece, ...], tuple[Piece, ...] | None]:
        return self.single, self.pair


def frame_of(files: TokenizerFiles, tokenizer: Tokenizer) -> Frame:
    """The frame that a model's tokenizer files ask for. Raises as `read_frame`."""
    if files.gguf is not None and files.frame_ids is not None:
        cls, sep = map(TokenId, files.frame_ids)
        return classic_frame(cls, sep) if files.gguf.kind == "bert" else roberta_frame(cls, sep)
    frame = Frame() if files.json_path is None else read_frame(files.json_path, tokenizer.vocab_size)
    if frame.num_special():
        return frame
    end = () if files.end_id is None else (TokenId(files.end_id),)
    return Frame((Piece(tokenizer.opening, 0), Piece("A", 0), Piece(end, 0)))


def read_frame(path: Path, vocab_size: int) -> Frame:
    """The frame in a tokenizer.json; that of a bare text if it has none.

    Raises:
        ModelFileError: the file is corrupt, or the frame names ids that the model does not have.
        UnsupportedModel: a kind of post-processor that we do not know.
    """
    try:
        frame = _frame(read_json(path).get("post_processor")) or Frame()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ModelFileError(f"{path}: the post-processor is malformed ({type(error).__name__})") from error
    except UnsupportedModel as error:
        raise UnsupportedModel(f"{path}: {error}") from error
    for pieces in (frame.single, frame.pair):
        for piece in pieces or ():
            if isinstance(piece.content, tuple) and not all(0 <= i < vocab_size for i in piece.content):
                raise ModelFileError(f"{path}: the post-processor names an id outside the model's {vocab_size}")
            if not 0 <= piece.type_id < 2**31:
                raise ModelFileError(f"{path}: the post-processor names token type {piece.type_id}")
    return frame


def _frame(processor: Mapping[str, Any] | None) -> Frame | None:
    match processor:
        case None | {"type": "ByteLevel"}:
            return None
        case {"type": "Sequence", "processors": list(steps)}:
            frames = [frame for frame in map(_frame, steps[:_MAX_PIECES]) if frame is not None]
            if len(frames) > 1:
                raise UnsupportedModel("a post-processor of several frames is not supported")
            return frames[0] if frames else None
        case {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}:
            return Frame(_pieces(single, special), _pair(_pieces(pair, special)))
        case {"type": "BertProcessing", "sep": [_, int(sep)], "cls": [_, int(cls)]}:
            return classic_frame(TokenId(cls), TokenId(sep))
        case {"type": "RobertaProcessing", "sep": [_, int(sep)], "cls": [_, int(cls)]}:
            return roberta_frame(TokenId(cls), TokenId(sep))
        case _:
            kind = processor.get("type") if isinstance(processor, dict) else processor
            raise UnsupportedModel(f"post-processor {kind!r:.80} is not supported")


def classic_frame(cls: TokenId, sep: TokenId) -> Frame:
    """BERT's: `[CLS] A [SEP]`, and `[CLS] A [SEP] B [SEP]` with the second part of another type."""
    start, end = Piece((cls,), 0), Piece((sep,), 0)
    return Frame((start, Piece("A", 0), end), (start, Piece("A", 0), end, Piece("B", 1), Piece((sep,), 1)))


def roberta_frame(cls: TokenId, sep: TokenId) -> Frame:
    """RoBERTa's: `<s> A </s>`, and `<s> A </s></s> B </s>`; one type for all."""
    start, end, first, second = Piece((cls,), 0), Piece((sep,), 0), Piece("A", 0), Piece("B", 0)
    return Frame((start, first, end), (start, first, end, end, second, end))


def _pieces(template: list[Any], special: Mapping[str, Any]) -> tuple[Piece, ...]:
    if len(template) > _MAX_PIECES:
        raise ValueError("too many pieces")
    pieces: list[Piece] = []
    for entry in template:
        match entry:
            case {"SpecialToken": {"id": str(name), "type_id": int(type_id)}}:
                ids = special[name]["ids"]
                if not all(type(i) is int for i in ids):
                    raise TypeError("ids are whole numbers")
                pieces.append(Piece(tuple(map(TokenId, ids)), type_id))
            case {"Sequence": {"id": ("A" | "B") as place, "type_id": int(type_id)}}:
                pieces.append(Piece(place, type_id))
            case _:
                raise ValueError("neither a special token nor a text")
    return tuple(pieces)


def _pair(pieces: tuple[Piece, ...]) -> tuple[Piece, ...] | None:
    """A pair's frame, if it is one: some files leave out the second text."""
    places = [piece.content for piece in pieces if isinstance(piece.content, str)]
    return pieces if sorted(places) == ["A", "B"] else None
