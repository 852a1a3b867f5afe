"""Log-probabilities: each token of a reply once, in order, and not before its text."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chat_harness import END, TOKENIZER, WEATHER, Chat, call_text, run, said, user
from tenuto.ids import TokenId
from tenuto.protocol.chat import ModelEvent, ReplyFinished, TextDelta, TokenScore, TokensScored

ASK = user("今天天气怎么样？")


def ask(script: Sequence[Sequence[int]], ids_per_delta: int = 1, **fields: object) -> list[ModelEvent]:
    async def main() -> list[ModelEvent]:
        fields.setdefault("logprobs", 2)
        return await Chat(script, ids_per_delta=ids_per_delta).events(ASK, **fields)

    return run(main())


def scores(events: Sequence[ModelEvent]) -> list[TokenScore]:
    return [score for event in events if isinstance(event, TokensScored) for score in event.tokens]


def text(events: Sequence[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def kept(events: Sequence[ModelEvent]) -> tuple[TokenId, ...]:
    assert isinstance(events[-1], ReplyFinished)
    return events[-1].token_ids


def test_nobody_is_bothered_who_did_not_ask():
    assert not scores(ask([said("晴。")], logprobs=None))


@pytest.mark.parametrize("ids_per_delta", [1, 3, 100])
def test_every_token_is_scored_once_and_stands_for_its_bytes(ids_per_delta: int):
    events = ask([said("晴，二十度 🌤️ and 한국.")], ids_per_delta)
    found = scores(events)
    assert tuple(score.token.id for score in found) == kept(events)
    assert b"".join(score.token.data for score in found).decode() == text(events) == "晴，二十度 🌤️ and 한국."
    for score in found:
        assert score.token.logprob == -float(score.token.id % 8) and not score.forced
        assert [one.id for one in score.top] == [score.token.id + 1, score.token.id + 2]
        assert [one.data for one in score.top] == [TOKENIZER.text_bytes(one.id) for one in score.top]
    assert [len(score.top) for score in scores(ask([said("晴。")], logprobs=0))] == [0] * len(said("晴。", None))


def test_text_does_not_come_before_its_scores():
    seen = b""
    for event in ask([said("晴，二十度 🌤️ and 한국.")], 2):
        if isinstance(event, TokensScored):
            seen += b"".join(score.token.data for score in event.tokens)
        if isinstance(event, TextDelta):
            assert event.text.encode() in seen
    assert seen


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["STOPHERE", "STOPHEX go on", "one STOPHE", "晴。STOPHERE 雨", "a", "STOPHERE"]), st.integers(1, 5)
)
def test_the_tokens_of_a_stop_string_are_not_told(reply: str, ids_per_delta: int):
    """B34: neither its text nor its tokens, wherever the deltas are cut."""
    events = ask([said("go: " + reply)], ids_per_delta, stop=("STOPHERE",))
    told = b"".join(score.token.data for score in scores(events)).decode()
    assert text(events).startswith(told), "no token says more than the text"
    assert not told.endswith("STOP")
    if "STOPHERE" not in reply:
        assert told == text(events) == "go: " + reply
        assert tuple(score.token.id for score in scores(events)) == kept(events)


def test_the_tokens_of_a_call_are_scored_too():
    events = ask([said("查一下。" + call_text(city="奥斯陆"))], tools=(WEATHER,))
    assert tuple(score.token.id for score in scores(events)) == kept(events)


def test_what_follows_the_only_call_allowed_is_not_told():
    made = call_text(city="奥斯陆")
    events = ask([said(made + "\n" + made)], tools=(WEATHER,), parallel_tool_calls=False)
    assert b"".join(score.token.data for score in scores(events)).decode().strip() == made
    assert tuple(score.token.id for score in scores(events)) == kept(events)


def test_half_a_character_at_the_end_is_not_told():
    ids = said("好👨‍👩‍👧", None)
    for count in range(1, len(ids)):
        events = ask([ids], max_tokens=count)
        told = b"".join(score.token.data for score in scores(events))
        assert told.decode() == text(events)


def test_the_end_of_turn_is_not_scored_but_any_other_control_token_is_by_its_name():
    end_of_text = TOKENIZER.control["<|endoftext|>"]
    events = ask([[*said("好", None), end_of_text, *said("的", None), END]], ignore_eos=True, max_tokens=40)
    names = [score.token.data for score in scores(events)]
    assert b"<|endoftext|>" in names
    assert b"<|im_end|>" not in [score.token.data for score in scores(ask([said("好")]))]
