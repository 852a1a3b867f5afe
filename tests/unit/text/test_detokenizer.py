from __future__ import annotations

import pytest

from embedded_tokenizer import embedded_tokenizer
from real_tokenizers import mistral_path
from tenuto.checkpoint import GGUFTokenizer, SentencePieceFile, TokenizerFiles
from tenuto.checkpoint.sentencepiece_format import read_sentencepiece
from tenuto.ids import TokenId
from tenuto.text.byte_level import BYTE_OF_CHARACTER
from tenuto.text.detokenizer import Detokenizer
from tenuto.text.tokenizer import Tokenizer


def byte_tokenizer() -> Tokenizer:
    """Token i is byte i."""
    tokens = [c for _, c in sorted((b, c) for c, b in BYTE_OF_CHARACTER.items())]
    gguf = GGUFTokenizer(
        kind="gpt2", pre="gpt-2", tokens=tokens, token_types=[1] * 256, merges=[], scores=[], add_space_prefix=False
    )
    return Tokenizer.from_files(TokenizerFiles(gguf=gguf))


BYTES = byte_tokenizer()


def stream(data: bytes) -> list[str]:
    detokenizer = Detokenizer(BYTES)
    return [*(detokenizer.push(TokenId(b)) for b in data), detokenizer.finish()]


@pytest.mark.parametrize("text", ["é", "한", "🇳🇴", "👨‍👩‍👧", "北京今天天气怎么样？"])
def test_only_whole_characters_are_emitted(text: str) -> None:
    pieces = stream(text.encode())
    assert "".join(pieces) == text and "\ufffd" not in "".join(pieces)
    assert all(piece in ("", *text) for piece in pieces)


def test_a_cut_character_at_the_end_is_one_replacement_mark() -> None:
    assert stream("天".encode()[:2])[-1] == "\ufffd" and "".join(stream("a天".encode()[:-1])) == "a\ufffd"


def test_invalid_bytes_are_flushed_at_once() -> None:
    assert stream(b"\xff" * 200) == ["\ufffd"] * 200 + [""]
    assert "".join(stream(b"\xffa" * 50)) == "\ufffda" * 50


@pytest.mark.parametrize(
    "data", [b"\xe4\xb8\xe4\xb8\xad", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80"]
)
def test_marks_follow_the_maximal_subpart_rule(data: bytes) -> None:
    assert "".join(stream(data)) == data.decode("utf-8", errors="replace")


def test_byte_tokens_of_a_sentencepiece_vocabulary() -> None:
    """B41: characters that fall back to bytes come whole; bytes that are none come at once, never again."""
    path = mistral_path("v3")
    file = SentencePieceFile(path=path, model=read_sentencepiece(path), prefix="first", added={})
    tokenizer = Tokenizer.from_files(TokenizerFiles(sentencepiece=file))
    byte = {b: TokenId(file.model.tokens.index(f"<0x{b:02X}>")) for b in range(256)}
    stream = Detokenizer(tokenizer)
    assert [stream.push(byte[b]) for b in "龘".encode()] == ["", "", "龘"]
    assert [stream.push(byte[0xFF]) for _ in range(200)] == ["\ufffd"] * 200
    assert [stream.push(byte[b]) for b in b"\xe9a\xe9\xbe"] == ["", "\ufffda", "", ""] and stream.finish() == "\ufffd"


def test_the_space_before_a_text_is_left_out_once() -> None:
    path = mistral_path("v3")
    file = SentencePieceFile(path=path, model=read_sentencepiece(path), prefix="sections", added={})
    tokenizer = Tokenizer.from_files(TokenizerFiles(sentencepiece=file))
    ids = tokenizer.encode_with_control("<s>a b[INST] c")
    for skip_control, text in ((True, "a b  c"), (False, "<s> a b[INST]  c")):
        stream = Detokenizer(tokenizer, skip_control)
        assert "".join([*map(stream.push, ids), stream.finish()]) == tokenizer.decode(ids, skip_control) == text
    goes_on = Detokenizer(tokenizer, at_start=False)
    assert "".join(map(goes_on.push, tokenizer.encode(" c", "inside"))) == " c"


def test_stream_equals_decode_on_the_real_vocabulary() -> None:
    tokenizer = embedded_tokenizer()
    ids = tokenizer.encode_with_control("<|im_start|>你好 😀 é한<|im_end|>")
    detokenizer = Detokenizer(tokenizer)
    pieces = [*(detokenizer.push(i) for i in ids), detokenizer.finish()]
    assert "".join(pieces) == tokenizer.decode(ids, skip_control=True) == "你好 😀 é한"
    shown = Detokenizer(tokenizer, skip_control=False)
    assert "".join([*(shown.push(i) for i in ids), shown.finish()]) == tokenizer.decode(ids)
