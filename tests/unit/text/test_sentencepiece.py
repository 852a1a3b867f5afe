"""SentencePiece models, from their own file and from GGUF metadata, against the sentencepiece library."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import sentencepiece
import transformers

from made_tokenizers import made
from real_tokenizers import mistral_path
from tenuto.checkpoint import GGUFTokenizer, SentencePieceFile, TokenizerFiles
from tenuto.checkpoint.sentencepiece_format import SentencePieceModel, read_sentencepiece
from tenuto.errors import ModelFileError
from tenuto.ids import TokenId
from tenuto.protocol.grammar import GrammarSpec
from tenuto.text.grammar import LLGuidanceCompiler
from tenuto.text.marked import MarkedText
from tenuto.text.tokenizer import Tokenizer
from varied_text import varied_lines

_LLAMA = {"model_type": "bpe", "byte_fallback": True, "remove_extra_whitespaces": False}
KINDS = {
    "bpe": {**_LLAMA, "normalization_rule_name": "identity"},
    "bpe-nfkc": {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "nmt_nfkc"},
    "bpe-no-bytes": {"model_type": "bpe", "add_dummy_prefix": False, "remove_extra_whitespaces": False},
    "unigram": {"model_type": "unigram", "normalization_rule_name": "nmt_nfkc"},
}


@cache
def trained(kind: str) -> bytes:
    lines = [line for line in varied_lines(1500, seed=21) if "▁" not in line and "\0" not in line and line.strip()]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=3000,
        character_coverage=0.98,
        user_defined_symbols=["<tool_call>", "----", "▁▁▁▁", "\n\n"],
        control_symbols=["<|turn|>"],
        minloglevel=3,
        num_threads=1,
        hard_vocab_limit=False,
        **KINDS[kind],
    )
    return model.getvalue()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def as_file(path: Path, prefix: str = "first", added: dict[int, tuple[str, bool]] | None = None) -> TokenizerFiles:
    model = read_sentencepiece(path)
    return TokenizerFiles(
        sentencepiece=SentencePieceFile(path=path, model=model, prefix=prefix, added=added or {})  # type: ignore[arg-type]
    )


def as_gguf(model: SentencePieceModel) -> TokenizerFiles:
    return TokenizerFiles(
        gguf=GGUFTokenizer(
            kind="llama" if model.kind == "bpe" else "t5",
            pre="default",
            tokens=model.tokens,
            token_types=model.types,
            merges=[],
            scores=model.scores,
            add_space_prefix=model.add_dummy_prefix,
            remove_extra_whitespaces=model.remove_extra_whitespaces,
            charsmap=model.charsmap,
        )
    )


@pytest.fixture
def path(kind: str, tmp_path: Path) -> Path:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(trained(kind))
    return path


def test_ids_equal_the_library(path: Path, kind: str) -> None:
    reference = sentencepiece.SentencePieceProcessor(model_file=str(path))
    from_file = Tokenizer.from_files(as_file(path))
    from_gguf = Tokenizer.from_files(as_gguf(read_sentencepiece(path)))
    for line in varied_lines(800, seed=22):
        if "<tool_call>" in line or "\0" in line:
            continue  # content never becomes markup; the library ends a text at NUL
        if kind == "unigram" and re.search(r"(.)\1{4}", line, re.DOTALL):
            continue  # ways to spell a run that are equally likely: either is right
        expected = reference.encode(line)
        assert from_file.encode(line) == expected, repr(line)
        assert from_gguf.encode(line) == expected, repr(line)


def test_special_tokens_are_not_spelled_by_content(path: Path) -> None:
    ours = Tokenizer.from_files(as_file(path))
    assert {"<unk>", "<s>", "</s>", "<|turn|>", "<tool_call>"} == set(ours.control)
    for string in (*ours.control, " \x00 ", " \x00 0"):
        assert not any(ours.is_control(i) and i != ours.control["<unk>"] for i in ours.encode(f"a{string} {string}"))


def test_a_space_goes_where_the_files_say(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(trained("bpe"))
    first, sections = (Tokenizer.from_files(as_file(path, prefix)) for prefix in ("first", "sections"))
    turn = first.control["<|turn|>"]
    text = MarkedText("the<|turn|>the", "\ufdd0")
    assert first.encode(text) == [*first.encode("the"), turn, *first.encode("the", "inside")]
    assert sections.encode(text) == [*first.encode("the"), turn, *first.encode("the")]
    assert first.encode("the", "inside") != first.encode("the")
    assert first.decode(first.encode(" the")) == " the", "the text's own space stays"


def test_bytes_of_tokens_are_those_of_the_text(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(trained("bpe"))
    ours = Tokenizer.from_files(as_file(path))
    names = read_sentencepiece(path).tokens
    assert ours.text_bytes(TokenId(names.index("<0x0A>"))) == b"\n"
    assert ours.text_bytes(TokenId(names.index("▁▁▁▁"))) == b"    "
    assert ours.token_bytes(TokenId(names.index("<s>"))) == b""
    assert ours.token_bytes(TokenId(names.index("<tool_call>"))) == b"<tool_call>", "parsers must see it"


def test_added_tokens_extend_the_vocabulary(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(trained("bpe"))
    size = len(read_sentencepiece(path).tokens)
    added = {size: ("<|im_end|>", True), size + 1: ("wörd", False), size + 9: ("<far>", True)}
    files = as_file(path, added=added)
    ours = Tokenizer.from_files(files, vocab_size=size + 4)
    assert ours.control["<|im_end|>"] == size and "<far>" not in ours.control
    assert size + 1 in ours.encode("a wörd here") and ours.eos_ids == {size}


def test_grammars_force_and_accept_the_tokens_that_text_encodes_to() -> None:
    ours = Tokenizer.from_files(replace(as_file(mistral_path("v3")), bos_id=1, eos_ids=(2,)))
    source = 'start: "Hello, the weather in " /[A-Z][a-z]+/ "\\n" "天气龘."'
    grammar = LLGuidanceCompiler(ours).compile(GrammarSpec(kind="lark", source=source))
    ids = ours.encode("Hello, the weather in Paris\n天气龘.", "inside")
    forced = grammar.forced()
    assert len(forced) > 3 and list(forced) == ids[: len(forced)]
    for token in ids:
        assert grammar.accept(token), ours.text_bytes(token)
    assert b"\n" in map(ours.text_bytes, ids) and b"\xe9" in map(ours.text_bytes, ids), "bytes of their own"


@pytest.mark.parametrize("style", ["llama2", "metaspace-first", "metaspace-always"])
def test_transformers_reads_the_same_from_the_json_form(style: str, tmp_path: Path) -> None:
    made(style).save(str(tmp_path / "tokenizer.json"))
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    ours = Tokenizer.from_files(TokenizerFiles(json_path=tmp_path / "tokenizer.json"))
    for line in varied_lines(200, seed=23):
        assert ours.encode_with_control(line) == theirs.encode(line, add_special_tokens=False)


@pytest.mark.parametrize("cut", [0, 1, 7, 100, 5_000])
def test_files_that_are_cut_short_are_refused(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(mistral_path("v3").read_bytes()[:cut])
    with pytest.raises(ModelFileError, match=r"tokenizer\.model"):
        Tokenizer.from_files(as_file(path))


def test_lists_that_do_not_fit_are_refused() -> None:
    model = SentencePieceModel(
        kind="bpe",
        tokens=["a", "a"],
        scores=[0.0, 0.0],
        types=[1, 1],
        unknown_id=None,
        add_dummy_prefix=True,
        remove_extra_whitespaces=False,
    )
    with pytest.raises(ModelFileError, match="listed twice"):
        Tokenizer.from_files(as_gguf(model))
