"""B44: a model that likes white space best still comes to the end of its JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest

from embedded_tokenizer import embedded_tokenizer
from tenuto.ids import TokenId
from tenuto.protocol.grammar import GrammarSpec, ReasoningFrame, TokenMask
from tenuto.text.grammar import LLGuidanceCompiler

TOKENIZER = embedded_tokenizer()
COMPILER = LLGuidanceCompiler(TOKENIZER)
ONE_STRING = '{"type": "object", "properties": {"城市": {"type": "string", "maxLength": 8}}, "required": ["城市"]}'
FRAME = ReasoningFrame(open="<think>", close="</think>", is_open=True)


def preferred(mask: TokenMask, in_string: bool) -> TokenId:
    """White space where it may come outside strings, the longest of it; else what closes; else the first there is."""
    allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()
    texts = {token: TOKENIZER.token_bytes(TokenId(token)) for token in allowed}
    spaces = [token for token, text in texts.items() if text and text.isspace()]
    if spaces and not in_string:
        return TokenId(max(spaces, key=lambda token: len(texts[token])))
    closing = [token for token in allowed if texts[token] in (b'"', b"}", b'"}')]
    return TokenId((closing or allowed)[0])


@pytest.mark.parametrize("source", [ONE_STRING, '{"type": "object"}'])
@pytest.mark.parametrize("after_thinking", [False, True])
def test_white_space_ends(source: str, after_thinking: bool) -> None:
    frame = FRAME if after_thinking else None
    grammar = COMPILER.compile(GrammarSpec(kind="json_schema", source=source, reasoning=frame))
    ids: list[TokenId] = []
    for token in TOKENIZER.encode("</think>") if after_thinking else ():
        assert grammar.accept(token)
    while not grammar.finished:
        assert len(ids) < 60, TOKENIZER.decode(ids)
        for token in grammar.forced() or (preferred(grammar.mask(), TOKENIZER.decode(ids).count('"') % 2 == 1),):
            if token in TOKENIZER.eos_ids:
                break
            assert grammar.accept(token)
            ids.append(token)
        else:
            continue
        break
    text = TOKENIZER.decode(ids)
    assert isinstance(json.loads(text), dict)
    outside = text.replace(json.loads(text).get("城市", "\0"), "")
    assert sum(char.isspace() for char in outside) <= (4 if after_thinking else 0) + 4, repr(text)
