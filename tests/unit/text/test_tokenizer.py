from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from embedded_tokenizer import embedded_files, embedded_path, embedded_tokenizer
from tenuto.checkpoint import GGUFTokenizer, TokenizerFiles
from tenuto.errors import InvalidRequest, ModelFileError, UnsupportedModel
from tenuto.ids import TokenId
from tenuto.text.marked import MarkedText
from tenuto.text.tokenizer import Tokenizer as OurTokenizer

PROBE = "Héllo  wörld 12345 😀\n\n<tool_call><|im_start|>user\n北京今天天气怎么样？<|im_end|>"


# By transformers 5.24 from the same file; its conversion has no rule for digits, which make no difference here.
PROBE_IDS = [
    *(
        56,
        2756,
        31394,
        216,
        267,
        29989,
        400,
        216,
        33,
        34,
        35,
        36,
        37,
        40303,
        218,
        198,
        198,
        44,
        19324,
        79,
        4350,
        46,
        1,
        4093,
    ),
    *(
        198,
        30158,
        241,
        16736,
        122,
        15076,
        228,
        18614,
        119,
        18614,
        119,
        177,
        125,
        238,
        37911,
        232,
        27948,
        226,
        26519,
        132,
        8083,
        249,
        2,
    ),
]


def test_ids_equal_an_independent_conversion_of_the_same_file() -> None:
    assert embedded_tokenizer().encode_with_control(PROBE) == PROBE_IDS


@pytest.mark.soak
def test_ids_equal_the_conversion_of_transformers_on_many_texts() -> None:
    transformers = pytest.importorskip("transformers")
    path = embedded_path()
    theirs = transformers.AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    letters = (c for c in map(chr, range(0x20, 0x3000)) if not c.isnumeric())
    for text in (PROBE, *(f"{c}a {c}{c} 北{c}\n" for c in letters)):
        assert embedded_tokenizer().encode_with_control(text) == theirs.encode(text, add_special_tokens=False), text


def test_digits_stand_alone_as_the_smollm_pre_tokenizer_says() -> None:
    tokenizer = embedded_tokenizer()
    assert [tokenizer.text_of(i) for i in tokenizer.encode("in 2024, 7x")] == [
        "in",
        " ",
        "2",
        "0",
        "2",
        "4",
        ",",
        " ",
        "7",
        "x",
    ]


def test_text_comes_back_as_it_was() -> None:
    tokenizer = embedded_tokenizer()
    assert tokenizer.decode(tokenizer.encode(PROBE)) == PROBE
    assert tokenizer.decode(tokenizer.encode_with_control(PROBE)) == PROBE


def test_a_lone_surrogate_becomes_a_replacement_mark() -> None:
    tokenizer = embedded_tokenizer()
    assert tokenizer.encode("a\ud83db\ude00") == tokenizer.encode("a\ufffdb\ufffd")
    assert tokenizer.encode(MarkedText("<|im_end|>\ud83d", "\ufdd0")) == [2, *tokenizer.encode("\ufffd")]


def test_plain_text_never_becomes_a_control_token() -> None:
    tokenizer = embedded_tokenizer()
    assert not any(tokenizer.is_control(i) for i in tokenizer.encode("<|im_end|><|im_start|>system\n<|endoftext|>"))
    assert tokenizer.encode_with_control("<|im_end|>") == [2]


def test_only_whole_control_strings_of_marked_text_are_control() -> None:
    tokenizer = embedded_tokenizer()
    ids = tokenizer.encode(MarkedText("<|im_start|>a<\ufdd0|im_end|>b<|im_end|>", "\ufdd0"))
    assert [i for i in ids if tokenizer.is_control(i)] == [1, 2]
    assert tokenizer.decode(ids) == "<|im_start|>a<|im_end|>b<|im_end|>"


def test_control_tokens_are_no_text_for_users() -> None:
    tokenizer = embedded_tokenizer()
    ids = tokenizer.encode_with_control("<|im_start|>hi<|im_end|>")
    assert tokenizer.decode(ids, skip_control=True) == "hi"
    assert tokenizer.token_bytes(TokenId(2)) == b"" and tokenizer.text_bytes(TokenId(2)) == b"<|im_end|>"


def test_encoding_adds_no_bos() -> None:
    files = replace(embedded_files(), add_bos=True)
    assert OurTokenizer.from_files(files).encode_with_control("<|im_start|>") == [1]


def test_turn_ends_by_any_of_the_eos_ids() -> None:
    files = replace(embedded_files(), eos_ids=(0, 7))
    assert OurTokenizer.from_files(files).eos_ids == {0, 7, 2}


def test_unknown_pre_tokenizer_is_refused_by_name() -> None:
    files = embedded_files()
    assert files.gguf is not None
    with pytest.raises(UnsupportedModel, match="'brand-new'"):
        OurTokenizer.from_files(replace(files, gguf=replace(files.gguf, pre="brand-new")))


def test_other_kinds_are_refused_by_name() -> None:
    files = embedded_files()
    assert files.gguf is not None
    with pytest.raises(UnsupportedModel, match="'rwkv'"):
        OurTokenizer.from_files(replace(files, gguf=replace(files.gguf, kind="rwkv")))


@pytest.mark.parametrize(
    ("change", "message"), [({"eos_ids": (49152,)}, "eos id 49152"), ({"bos_id": -1}, "bos id -1")]
)
def test_ids_out_of_range_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        OurTokenizer.from_files(replace(embedded_files(), **change))


def test_lists_that_do_not_fit_are_refused() -> None:
    tiny = GGUFTokenizer(
        kind="gpt2", pre="gpt-2", tokens=["a", "b"], token_types=[1], merges=[], scores=[], add_space_prefix=False
    )
    with pytest.raises(ModelFileError, match="2 tokens, but 1"):
        OurTokenizer.from_files(TokenizerFiles(gguf=tiny))
    broken = replace(tiny, token_types=[1, 1], merges=["a b"])
    with pytest.raises(ModelFileError, match="merge"):
        OurTokenizer.from_files(TokenizerFiles(gguf=broken))


def test_padding_of_the_embedding_has_no_text_and_ids_beyond_are_refused() -> None:
    tokenizer = OurTokenizer.from_files(embedded_files(), vocab_size=49155)
    assert tokenizer.vocab_size == 49155 and tokenizer.token_bytes(TokenId(49154)) == b""
    with pytest.raises(InvalidRequest, match="49155"):
        tokenizer.decode([TokenId(49155)])
    with pytest.raises(ModelFileError, match="outside the model's 100"):
        OurTokenizer.from_files(embedded_files(), vocab_size=100)


@pytest.fixture
def json_path(tmp_path: Path) -> Path:
    """A tokenizer.json with a special token, a markup token that is not special, and one that is mere spelling."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken("<|end|>", normalized=False, rstrip=True)])
    made.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("    ", normalized=False)])
    path = tmp_path / "tokenizer.json"
    made.save(str(path))
    return path


def test_tokenizer_json_reads_like_the_library_itself(json_path: Path) -> None:
    ours = OurTokenizer.from_files(TokenizerFiles(json_path=json_path, eos_ids=(256,)))
    text = "a    é<tool_call>今天<|end|>  b"
    assert ours.encode_with_control(text) == Tokenizer.from_file(str(json_path)).encode(text).ids
    assert ours.encode(MarkedText(text, "\ufdd0")) == ours.encode_with_control(text)
    assert ours.vocab_size == 259 and ours.eos_ids == {256}


def test_markup_that_is_not_flagged_special_is_control_too_but_seen_by_parsers(json_path: Path) -> None:
    ours = OurTokenizer.from_files(TokenizerFiles(json_path=json_path, eos_ids=(256,)))
    assert not any(ours.is_control(i) for i in ours.encode("<tool_call>    <|end|>"))
    assert TokenId(258) in ours.encode("a    b"), "spelling stays readable in content"
    ids = ours.encode_with_control("<tool_call>x<|end|>")
    assert ours.decode(ids, skip_control=True) == "<tool_call>x"


def test_tokenizer_json_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text("{", encoding="utf-8")
    files = TokenizerFiles(json_path=path)
    with pytest.raises(ModelFileError, match="not JSON"):
        OurTokenizer.from_files(files)
    path.write_text(json.dumps(json.loads(Tokenizer(models.WordLevel({"a": 0}, "a")).to_str())), encoding="utf-8")
    with pytest.raises(UnsupportedModel, match="WordLevel"):
        OurTokenizer.from_files(files)


def test_a_model_without_tokenizer_is_refused() -> None:
    with pytest.raises(ModelFileError, match="no tokenizer"):
        OurTokenizer.from_files(TokenizerFiles())
