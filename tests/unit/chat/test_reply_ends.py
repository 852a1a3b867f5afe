"""How a reply ends: stop strings, max_tokens, half characters, half calls; and what the session then holds."""

from __future__ import annotations

import pytest

from chat_harness import END, SESSION, TOKENIZER, WEATHER, Chat, assistant, call_text, run, said, user
from tenuto.errors import InvalidRequest
from tenuto.protocol.chat import TextDelta, ToolCallDelta, ToolCallFinished, ToolCallStarted

ASK = (user("说话"),)


def text_of(events: list) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@pytest.mark.parametrize("ids_per_delta", [1, 3, 100])
def test_a_stop_string_ends_the_text_before_it(ids_per_delta):
    async def main() -> None:
        chat = Chat([said("你好 STOPHEX, then STOPHERE and more"), said("二")], ids_per_delta=ids_per_delta)
        events = await chat.events(*ASK, session=SESSION, stop=("STOPHERE", "never"))
        last = events[-1]
        assert text_of(events) == last.message.content == "你好 STOPHEX, then "
        assert last.reason == "stop"
        prompt = tuple(chat.rendered(*ASK))
        kept = chat.tokens()[len(prompt) :]
        assert "你好 STOPHEX, then ".startswith(TOKENIZER.decode(kept))
        assert TOKENIZER.decode(last.token_ids) == "你好 STOPHEX, then "
        usage = last.usage
        assert usage.num_prompt == usage.num_computed == len(prompt) and usage.num_generated > len(kept)
        # The next turn goes on from what was emitted, and says nothing of a miss, for there is none.
        second = await chat.ask(*ASK, last.message, user("?"))
        assert second.usage.reuse_break is None and second.usage.num_held >= len(prompt) + len(kept) - 1
        assert chat.tokens()[: len(prompt) + len(last.token_ids) + 1] == (*prompt, *last.token_ids, END)

    run(main())


def test_a_stop_string_that_begins_within_a_token():
    (token,) = TOKENIZER.encode("):")

    async def main() -> None:
        chat = Chat([[*TOKENIZER.encode("f(x"), token, END], said("二")])
        first = await chat.ask(*ASK, stop=(":",))
        assert first.message.content == "f(x)"
        assert chat.tokens() == (*chat.rendered(*ASK), *TOKENIZER.encode("f(x"))
        assert first.token_ids == (*TOKENIZER.encode("f(x"), *TOKENIZER.encode(")"))
        await chat.ask(*ASK, first.message, user("?"))
        assert chat.tokens() == (*chat.rendered(*ASK, assistant("f(x)"), user("?")), *said("二"))

    run(main())


def test_a_stop_string_at_once():
    async def main() -> None:
        chat = Chat([said("STOP"), said("二")])
        first = await chat.ask(*ASK, stop=("STOP",))
        assert (first.message.content, first.token_ids) == ("", ())
        assert chat.tokens() == tuple(chat.rendered(*ASK))
        second = await chat.ask(*ASK, first.message, user("?"))
        assert second.usage.reuse_break is None

    run(main())


def test_usage_of_a_stopped_turn_tells_held_from_shared():
    async def main() -> None:
        chat = Chat([said("一"), said("a STOP b"), said("c STOP d")])
        first = await chat.ask(*ASK)
        more = (*ASK, first.message, user("再说一次，请。"))
        held = await chat.ask(*more, stop=("STOP",))
        assert held.usage.num_held == len(chat.rendered(*ASK)) + len(said("一")) - 1
        assert held.usage.num_held + held.usage.num_computed == held.usage.num_prompt
        alone = await chat.ask(*more, stop=("STOP",), session=None)
        assert alone.usage.num_held == 0 and alone.usage.num_shared >= 16
        assert alone.usage.num_shared + alone.usage.num_computed == alone.usage.num_prompt

    run(main())


def test_stop_strings_are_not_looked_for_in_calls():
    async def main() -> None:
        chat = Chat([said("看 " + call_text(city="STOP 城") + " done STOP x")])
        events = await chat.events(*ASK, session=SESSION, tools=(WEATHER,), stop=("STOP",))
        (made,) = [event.call for event in events if isinstance(event, ToolCallFinished)]
        assert made.arguments == {"city": "STOP 城"}
        assert events[-1].message.content.startswith("看") and events[-1].message.content.endswith("done ")
        assert events[-1].reason == "tool_calls"

    run(main())


@pytest.mark.parametrize("stop", ["a", "<", "tool_call", "天"])
def test_stop_strings_are_not_looked_for_in_a_call_that_is_cut_off(stop):
    cut = TOKENIZER.encode(call_text(city="天津"))[:-6]

    async def main() -> None:
        whole = Chat([said("1 " + call_text(city="北京"), end=None) + cut])
        last = await whole.ask(*ASK, tools=(WEATHER,), stop=(stop,), max_tokens=200)
        assert [one.arguments for one in last.message.tool_calls] == [{"city": "北京"}]
        assert last.message.content == "1 " + TOKENIZER.decode(cut)

    run(main())


def test_an_empty_stop_string_is_refused():
    async def main() -> None:
        with pytest.raises(InvalidRequest, match="stop"):
            await Chat().ask(*ASK, stop=("",))

    run(main())


@pytest.mark.parametrize("char", ["é", "한", "\U0001f1f3\U0001f1f4", "\U0001f468‍\U0001f469‍\U0001f467", "鑫"])
def test_a_character_cut_by_max_tokens_is_dropped_and_the_session_cut_back(char):
    """B33: whole characters only, and a partial one at the end is dropped, from the session too."""
    ids = said("好" + char + "!", None)

    async def main() -> None:
        for cut in range(1, len(ids) + 1):
            chat = Chat([ids, said("二")])
            events = await chat.events(*ASK, session=SESSION, max_tokens=cut)
            last = events[-1]
            whole = TOKENIZER.decode(ids[:cut]).rstrip("\ufffd")
            assert text_of(events) == last.message.content == whole
            assert last.reason == "length"
            assert TOKENIZER.decode(last.token_ids) == whole
            assert chat.tokens() == (*chat.rendered(*ASK), *last.token_ids)
            second = await chat.ask(*ASK, last.message, user("?"))
            assert second.usage.reuse_break is None

    run(main())


def test_a_call_cut_by_max_tokens_stays_what_was_sent_of_it_and_leaves_no_text():
    whole = said("看：" + call_text(city="北京"), None)

    async def main() -> None:
        chat = Chat([whole, said("二")])
        events = await chat.events(*ASK, session=SESSION, tools=(WEATHER,), max_tokens=len(whole) - 8)
        last = events[-1]
        assert last.reason == "length" and last.message.tool_calls == ()
        assert [event.name for event in events if isinstance(event, ToolCallStarted)] == ["get_weather"]
        arguments = "".join(event.arguments for event in events if isinstance(event, ToolCallDelta))
        assert '{"city": "北京"}'.startswith(arguments) and arguments.startswith('{"')
        assert not [event for event in events if isinstance(event, ToolCallFinished)]
        assert text_of(events) == last.message.content == "看："
        held = chat.tokens()
        assert TOKENIZER.decode(last.token_ids) == "看：", "no message can hold such a call, so nor does the session"
        second = await chat.ask(*ASK, last.message, user("?"), tools=(WEATHER,))
        assert second.usage.reuse_break is None and chat.tokens()[: len(held)] == held

    run(main())


def test_usage_adds_up_however_many_ids_come_at_once():
    """B35: the same counts whether a delta carries one id or many."""

    async def main() -> None:
        counts = []
        for ids_per_delta in (1, 4, 50):
            chat = Chat([said("一二三四五六七八")], ids_per_delta=ids_per_delta)
            usage = (await chat.ask(*ASK)).usage
            counts.append((usage.num_prompt, usage.num_computed, usage.num_generated))
            assert 0 <= usage.ttft_s <= usage.total_s
        assert len(set(counts)) == 1 and counts[0][2] == len(said("一二三四五六七八"))

    run(main())
