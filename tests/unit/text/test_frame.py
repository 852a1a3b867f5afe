"""The special tokens around a text, as tokenizer.json has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from tenuto.errors import ModelFileError, UnsupportedModel
from tenuto.ids import TokenId
from tenuto.text.frame import Frame, FramedText, Piece, read_frame
from tiny_encoders import word_tokenizer

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
SPECIAL = {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]}}


def ids(*numbers: int) -> list[TokenId]:
    return [TokenId(n) for n in numbers]


def write(directory: Path, post_processor: Any) -> Path:
    path = directory / "tokenizer.json"
    path.write_text(json.dumps({"model": {"type": "WordPiece", "vocab": {}}, "post_processor": post_processor}))
    return path


def frame_of(directory: Path, post_processor: Any, vocab_size: int = 64) -> Frame:
    return read_frame(write(directory, post_processor), vocab_size)


def made(processor: Any) -> Any:
    tokenizer = Tokenizer(models.WordLevel({str(i): i for i in range(20)}, unk_token="0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processor
    return tokenizer


@pytest.mark.parametrize(
    "processor",
    [
        processors.BertProcessing(("3", 3), ("2", 2)),
        processors.RobertaProcessing(("3", 3), ("2", 2)),
        processors.TemplateProcessing(single="2 $A 3", pair="2 $A 3 $B:1 3:1", special_tokens=[("2", 2), ("3", 3)]),
        processors.TemplateProcessing(
            single="$A 9 9", pair="2 $B 3 $A 3", special_tokens=[("2", 2), ("3", 3), ("9", 9)]
        ),
        processors.Sequence(
            [
                processors.ByteLevel(trim_offsets=False),
                processors.TemplateProcessing(single="$A 9", pair="$A 9 $B 9", special_tokens=[("9", 9)]),
            ]
        ),
    ],
)
def test_it_is_the_librarys(tmp_path: Path, processor: Any) -> None:
    library = made(processor)
    library.save(str(tmp_path / "tokenizer.json"))
    frame = read_frame(tmp_path / "tokenizer.json", 64)
    for pair in (False, True):
        expected = library.encode("10 11", "12 13 14") if pair else library.encode("10 11")
        ours = frame.around(ids(10, 11), ids(12, 13, 14)) if pair else frame.around(ids(10, 11))
        assert list(ours.ids) == expected.ids
        assert list(ours.types) == expected.type_ids
        assert frame.num_special(pair=pair) == len(expected.ids) - (5 if pair else 2)


def test_an_encoders_file(tmp_path: Path) -> None:
    word_tokenizer().save(str(tmp_path / "tokenizer.json"))
    frame = read_frame(tmp_path / "tokenizer.json", 64)
    assert frame.around(ids(7)) == FramedText(tuple(ids(2, 7, 3)), (0, 0, 0))
    assert frame.around(ids(7), ids(8)) == FramedText(tuple(ids(2, 7, 3, 8, 3)), (0, 0, 0, 1, 1))
    assert frame.around([], []).ids == tuple(ids(2, 3, 3))


@pytest.mark.parametrize("processor", [None, BYTE_LEVEL, {"type": "Sequence", "processors": [BYTE_LEVEL]}])
def test_without_a_frame_a_text_stands_bare(tmp_path: Path, processor: Any) -> None:
    frame = frame_of(tmp_path, processor)
    assert frame == Frame() and frame.pair is None
    assert frame.around(ids(7, 8)) == FramedText(tuple(ids(7, 8)), (0, 0))


def test_a_pair_without_its_second_text_is_none(tmp_path: Path) -> None:
    single = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    template = {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": SPECIAL}
    assert frame_of(tmp_path, template).pair is None


def test_types_that_a_model_does_not_have() -> None:
    frame = Frame((Piece("A", 0),), (Piece("A", 0), Piece("B", 1)))
    assert frame.with_types(2) is frame
    assert frame.with_types(1).around(ids(7), ids(8)).types == (0, 0)
    with pytest.raises(ModelFileError, match="token type 5"):
        Frame((Piece("A", 5),)).with_types(2)


def template(**changes: Any) -> dict[str, Any]:
    single = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    return {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": SPECIAL} | changes


@pytest.mark.parametrize(
    ("processor", "error"),
    [
        ({"type": "Lowercase"}, UnsupportedModel),
        ({"type": "Sequence", "processors": [template(), template()]}, UnsupportedModel),
        ("ByteLevel", UnsupportedModel),
        ({"type": "BertProcessing", "sep": ["[SEP]", "3"], "cls": ["[CLS]", 2]}, UnsupportedModel),
        ({"type": "BertProcessing", "sep": ["[SEP]", 99], "cls": ["[CLS]", 2]}, ModelFileError),
        ({"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", -1]}, ModelFileError),
        (template(special_tokens={}), ModelFileError),
        (template(special_tokens=7), ModelFileError),
        (template(special_tokens={"[CLS]": {"ids": [1.5]}}), ModelFileError),
        (template(special_tokens={"[CLS]": {"ids": [64]}}), ModelFileError),
        (template(single=[{"Sequence": {"id": "C", "type_id": 0}}]), ModelFileError),
        (template(single=[{"Sequence": {"id": "A", "type_id": -1}}]), ModelFileError),
        (template(single=[{"Sequence": {"id": "A", "type_id": 0}}] * 100), ModelFileError),
        (template(single=None), ModelFileError),
    ],
)
def test_what_is_no_frame_is_told_with_the_files_name(tmp_path: Path, processor: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"tokenizer\.json"):
        frame_of(tmp_path, processor)
