"""Thinking is found the same way whatever pieces a reply comes in."""

from __future__ import annotations

import itertools

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tenuto.text.reasoning import KNOWN_TAGS, ReasoningSplitter, ReasoningTags, Split

PARTS = ["<think>", "</think>", "[THINK]", "[/THINK]", "<", "</thi", ">", " ", "\n\n", "想", "a", "<tool_call>{}"]
TEXTS = st.lists(st.sampled_from(PARTS), max_size=10).map("".join)


def split(tags: ReasoningTags, is_open: bool, pieces: list[str]) -> Split:
    splitter = ReasoningSplitter(tags, is_open)
    parts = [splitter.push(piece) for piece in pieces]
    parts.append(splitter.finish())
    firsts = [place for place, part in enumerate(parts) if part.text]
    assert not firsts or not any(part.reasoning for part in parts[firsts[0] + 1 :]), (
        "text came before the thinking ended"
    )
    return Split("".join(part.reasoning for part in parts), "".join(part.text for part in parts))


@given(
    tags=st.sampled_from(KNOWN_TAGS[:2]),
    is_open=st.booleans(),
    text=TEXTS,
    cuts=st.lists(st.integers(0, 80), max_size=12),
)
@example(tags=KNOWN_TAGS[0], is_open=True, text="a </think>\n\nb", cuts=[1, 2, 3, 10, 11])
@settings(max_examples=300, deadline=None)
def test_every_chunking_equals_one_shot(tags: ReasoningTags, is_open: bool, text: str, cuts: list[int]) -> None:
    whole = split(tags, is_open, [text])
    assert split(tags, is_open, list(text)) == whole
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    assert split(tags, is_open, [text[a:b] for a, b in itertools.pairwise(places)]) == whole


@given(is_open=st.booleans(), text=TEXTS)
@settings(max_examples=200, deadline=None)
def test_nothing_is_lost_but_tags_and_white_space_beside_them(is_open: bool, text: str) -> None:
    tags = KNOWN_TAGS[0]
    reasoning, answer = split(tags, is_open, [text])
    begin = text.lstrip()
    thinks = is_open or (begin.startswith(tags.open) and len(text) - len(begin) <= 64)
    if not thinks:
        assert (reasoning, answer) == ("", text)
        return
    inside, closed, after = (text if is_open else begin.removeprefix(tags.open)).partition(tags.close)
    assert reasoning == inside.strip() and answer == (after.lstrip() if closed else "")
