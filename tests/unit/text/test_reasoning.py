"""Thinking told apart from the answer."""

from __future__ import annotations

import pytest

from tenuto.text.marked import MarkedText
from tenuto.text.reasoning import KNOWN_TAGS, ReasoningSplitter, ReasoningTags, Split, reasoning_tags

THINK = KNOWN_TAGS[0]
MENTION = 'some models write <tool_call>{"name": "x", "arguments": {}}</tool_call>'


def split(text: str, tags: ReasoningTags = THINK, is_open: bool = False) -> Split:
    splitter = ReasoningSplitter(tags, is_open)
    first, last = splitter.push(text), splitter.finish()
    return Split(first.reasoning + last.reasoning, first.text + last.text)


@pytest.mark.parametrize("tags", KNOWN_TAGS)
def test_every_known_pair_is_read(tags: ReasoningTags) -> None:
    assert split(f"{tags.open}\n想一想\n{tags.close}\n\n答案", tags) == ("想一想", "答案")


@pytest.mark.parametrize(
    ("text", "is_open", "expected"),
    [
        (f"<think>{MENTION}</think>yes", False, (MENTION, "yes")),  # B05
        (f"{MENTION}\n</think>\n\nyes", True, (MENTION, "yes")),  # the template opened it
        (f"<think>{MENTION}", False, (MENTION, "")),  # it never closes
        (MENTION, True, (MENTION, "")),
        (MENTION, False, ("", MENTION)),  # it never opens
        ("  \n<think> a\n\nb </think> c ", False, ("a\n\nb", "c ")),
        ("<think>\n\n</think>\n\n{}", False, ("", "{}")),  # empty
        ("\n</think>\n\n{}", True, ("", "{}")),
        ("the tag <think>x</think>", False, ("", "the tag <think>x</think>")),  # not at the beginning
        ("<think>a</think>b<think>c</think>", False, ("a", "b<think>c</think>")),
        ("x</think>y", False, ("", "x</think>y")),  # nothing was open
        ("  \n", False, ("", "  \n")),
        ("<thi", False, ("", "<thi")),
        ("<think>a\n</thi", False, ("a\n</thi", "")),
        ("<think>a</think>\n\n", False, ("a", "")),
        ("<thinking>a</thinking>b", False, ("", "<thinking>a</thinking>b")),  # another model's
        (" " * 65 + "<think>a</think>", False, ("", " " * 65 + "<think>a</think>")),
        ("", False, ("", "")),
        ("", True, ("", "")),
    ],
)
def test_what_is_thinking_and_what_is_text(text: str, is_open: bool, expected: tuple[str, str]) -> None:
    assert split(text, is_open=is_open) == expected


def test_text_is_passed_on_at_once_and_only_what_may_be_a_tag_waits() -> None:
    splitter = ReasoningSplitter(THINK, is_open=False)
    assert splitter.push("<th") == ("", "") and splitter.is_deciding
    assert splitter.push("ink>想") == ("想", "") and splitter.is_thinking and not splitter.is_deciding
    assert splitter.push(" \n") == ("", "")
    assert splitter.push("多 </thi") == (" \n多", "")
    assert splitter.push("s </think") == (" </this", "")
    assert splitter.push("> \n") == ("", "") and splitter.has_closed and not splitter.is_thinking
    assert splitter.push("好") == ("", "好")
    assert splitter.push(" \n") == ("", " \n")
    assert splitter.finish() == ("", "")


def test_the_pair_comes_from_the_template_or_else_from_the_vocabulary() -> None:
    assert reasoning_tags("{{ content.split('</think>')[-1] }}", ()) == THINK
    assert reasoning_tags("{{ content }}", ("[THINK]", "[/THINK]", "<s>")) == KNOWN_TAGS[1]
    assert reasoning_tags("...'</think>'...", ("[THINK]", "[/THINK]")) == THINK
    assert reasoning_tags("{{ content }}", ("<think>",)) is None
    assert reasoning_tags(None, ()) is None


@pytest.mark.parametrize(
    ("prompt", "opening"),
    [
        ("<|im_start|>assistant\n", "free"),
        ("<|im_start|>assistant\n<think>\n", "open"),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", "shut"),
        ("<Assistant></think>", "shut"),
        ("<think>\nuser", "free"),
        ("assistant\n<\ufdd0think>", "free"),  # content, marked
    ],
)
def test_how_a_prompt_leaves_the_reply(prompt: str, opening: str) -> None:
    assert THINK.opening(MarkedText(prompt, "\ufdd0")) == opening
