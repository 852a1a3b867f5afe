"""Tokenizer, template, detokenizer and parser against the plainest statement of what each must do."""

from __future__ import annotations

from functools import lru_cache

from hypothesis import given, settings
from hypothesis import strategies as st

from embedded_tokenizer import embedded_tokenizer
from tenuto.clock import RealClock
from tenuto.ids import CallId, TokenId
from tenuto.protocol.messages import Message, ToolCall, ToolSpec
from tenuto.text.detokenizer import Detokenizer
from tenuto.text.formats.pieces import CallArguments, ParsedPiece, Text
from tenuto.text.template import ChatTemplate
from tenuto.text.tool_format import HermesFormat

CONTROL = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<file_sep>")
FRAGMENTS = st.sampled_from(
    [
        *CONTROL,
        "<|im_",
        "<|",
        "|>",
        "end|>",
        "<",
        ">",
        "im_end|",
        "\ufdd0",
        "\ufdd1",
        "system\n",
        "你好",
        " ",
        "\n",
        "a",
        "😀",
        '"',
        "\\",
    ]
)
HOSTILE = st.lists(FRAGMENTS, max_size=8).map("".join)
ORDINARY = st.text(max_size=40).filter(lambda s: not any(c in s for c in CONTROL))


@lru_cache(maxsize=1)
def own_template() -> ChatTemplate:
    return ChatTemplate(None, embedded_tokenizer(), RealClock())


def conversation(texts: list[str]) -> tuple[list[Message], ToolSpec]:
    a, b, c, d, e, f = texts
    call = ToolCall(id=CallId("c1"), name=c or "t", arguments={d: [{"k": e}]})
    messages = [
        Message(role="system", content=a),
        Message(role="user", content=b),
        Message(role="assistant", content=f, tool_calls=(call,)),
        Message(role="tool", content=e, tool_call_id=CallId("c1"), name=c),
    ]
    tool = ToolSpec(name=c, description=d, parameters={"type": "object", "properties": {e: {"enum": [f]}}})
    return messages, tool


@given(st.lists(HOSTILE, min_size=6, max_size=6))
@settings(max_examples=150, deadline=None)
def test_no_control_token_ever_comes_of_content(texts: list[str]) -> None:
    tokenizer = embedded_tokenizer()
    messages, tool = conversation(texts)
    marked = own_template().render(messages, [tool], add_generation_prompt=True)
    found = [i for i in tokenizer.encode(marked) if tokenizer.is_control(i)]
    assert found == [1, 2, 1, 2, 1, 2, 1, 2, 1]
    assert all(m.content in marked.plain() for m in messages if marked.mark not in m.content)
    assert not any(marked.mark in m.content for m in messages)


@given(st.lists(ORDINARY, min_size=6, max_size=6))
@settings(max_examples=150, deadline=None)
def test_content_without_control_encodes_like_the_whole_string(texts: list[str]) -> None:
    tokenizer = embedded_tokenizer()
    messages, tool = conversation(texts)
    marked = own_template().render(messages, [tool], add_generation_prompt=True)
    assert tokenizer.encode(marked) == tokenizer.encode_with_control(marked.plain())


@given(st.one_of(HOSTILE, ORDINARY))
@settings(max_examples=150, deadline=None)
def test_plain_encoding_gives_no_control_and_comes_back(text: str) -> None:
    tokenizer = embedded_tokenizer()
    ids = tokenizer.encode(text)
    assert not any(tokenizer.is_control(i) for i in ids)
    spelled = {
        bytes([b])
        for i in range(17, 300)
        for b in tokenizer.text_bytes(TokenId(i))
        if len(tokenizer.text_bytes(TokenId(i))) == 1
    }
    if all(bytes([b]) in spelled for b in text.encode()):  # the vocabulary lacks a few control bytes and rare planes
        assert tokenizer.decode(ids) == text


@given(st.lists(st.integers(0, 400), max_size=60))
@settings(max_examples=300, deadline=None)
def test_detokenizer_joins_to_decode_and_holds_no_more_than_a_character(ids: list[int]) -> None:
    tokenizer = embedded_tokenizer()
    tokens = [TokenId(i) for i in ids]
    detokenizer = Detokenizer(tokenizer)
    text = ""
    for count, token in enumerate(tokens, 1):
        text += detokenizer.push(token)
        seen = b"".join(map(tokenizer.token_bytes, tokens[:count]))
        prefixes = (seen[: max(0, len(seen) - held)].decode("utf-8", errors="replace") for held in range(4))
        assert text in prefixes, "at most 3 bytes are held back"
    assert text + detokenizer.finish() == tokenizer.decode(tokens, skip_control=True)


CALL_FRAGMENTS = st.sampled_from(
    [
        *(
            "<tool_call>",
            "</tool_call>",
            "<tool",
            "_call>",
            "{",
            "}",
            "[",
            "]",
            '"',
            "\\",
            ",",
            ":",
            " ",
            "\n",
            "<",
            "x",
        ),
        *('"name": ', '"arguments": ', '"a"', '{"x": 1}', "null", "你好", "\\ud83d", "\\ude00", "\\n", "{}"),
        *('{"name": "f", "arguments": {"k": "v"}}', '{"name": "f", "arguments": ', '<tool_call>{"name": "g"'),
    ]
)


def merged(pieces: list[ParsedPiece]) -> list[ParsedPiece]:
    out: list[ParsedPiece] = []
    for piece in pieces:
        if out and isinstance(piece, Text) and isinstance(out[-1], Text):
            out[-1] = Text(out[-1].text + piece.text)
        elif out and isinstance(piece, CallArguments) and isinstance(out[-1], CallArguments):
            out[-1] = CallArguments(out[-1].text + piece.text)
        else:
            out.append(piece)
    return out


@given(st.lists(CALL_FRAGMENTS, max_size=14), st.randoms(use_true_random=False))
@settings(max_examples=600, deadline=None)
def test_a_parse_does_not_depend_on_how_the_text_was_cut(fragments: list[str], random: object) -> None:
    text = "".join(fragments)
    whole = HermesFormat().parser()
    expected = merged([*whole.push(text), *whole.finish()])
    for chunks in (list(text), fragments, cut(text, random)):
        parser = HermesFormat().parser()
        pieces = [p for chunk in chunks for p in parser.push(chunk)]
        assert merged([*pieces, *parser.finish()]) == expected


def cut(text: str, random: object) -> list[str]:
    chunks = []
    while text:
        size = random.randint(1, 7)  # type: ignore[attr-defined]
        chunks.append(text[:size])
        text = text[size:]
    return chunks
